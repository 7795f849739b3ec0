// Sections zero_optimization.offload_param and offload_optimizer, and aio (their files).
#include <fmt/core.h>

#include "runtime/config/job.h"
#include "runtime/config/json/tree.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"

namespace dstrain::keys {
namespace {

constexpr std::string_view kNoPath =
    "nvme needs nvme_path: a directory on the drive, or one for each";

// Where parameters are offloaded to at stage 3.
constexpr Rule kParameterDevice{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      if (value.text == "none") return {State::no_effect, "offload is off"};
      if (facts.stage != 3)
        return {State::no_effect, fmt::format("matters at stage 3; the stage is {}", facts.stage)};
      if (value.text == "cpu")
        return {State::honoured, "parameters are in the host's memory, and gathered from there"};
      if (rules::lacks_drive(facts, "zero_optimization.offload_param"))
        return {State::error, std::string(kNoPath)};
      return {State::honoured, "parameters are on disk, but for the first max_in_cpu of a rank"};
    },
    "none, or not stage 3: no_effect; else honoured"};

constexpr Rule kOptimizerDevice{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      if (value.text == "none") return {State::no_effect, "offload is off"};
      if (value.text == "cpu")
        return {State::honoured, "master weights and optimizer state are in the host's memory"};
      if (rules::lacks_drive(facts, "zero_optimization.offload_optimizer"))
        return {State::error, std::string(kNoPath)};
      if (facts.text("dstrain.offload.optimizer_on") == "device")
        return {State::refused,
                "state on disk is updated by the host: remove dstrain.offload.optimizer_on"};
      return {State::honoured, "master weights and optimizer state are on disk"};
    },
    "none: no_effect; cpu, nvme: honoured"};

std::string device_of(const Facts& facts, const KeySpec& spec) {
  return facts.text(std::string(spec.key.substr(0, spec.key.rfind('.'))) + ".device");
}

// A key of offload_optimizer that dstrain does without; its note says why.
constexpr Rule kNotNeeded{[](const Facts& facts, const KeySpec& spec, const Node&) -> Judgement {
                            if (device_of(facts, spec) == "none")
                              return {State::no_effect, "offload is off"};
                            return {State::no_effect, std::string(spec.note)};
                          },
                          "no_effect"};

constexpr Rule kIfOffloaded{[](const Facts& facts, const KeySpec& spec, const Node&) -> Judgement {
                              if (device_of(facts, spec) == "none")
                                return {State::no_effect, "offload is off"};
                              return {};
                            },
                            "device none: no_effect; else honoured"};

constexpr Rule kOptimizerPath{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      const std::string device = device_of(facts, spec);
      if (device == "none") return {State::no_effect, "offload is off"};
      if (device == "cpu") return {State::no_effect, "nothing is offloaded to nvme"};
      return rules::judge_drives(value);
    },
    "device none, cpu: no_effect; nvme: honoured, an empty name: error"};

constexpr Rule kOfParametersOnDisk{
    [](const Facts& facts, const KeySpec& spec, const Node&) -> Judgement {
      const std::string device = device_of(facts, spec);
      if (device == "none") return {State::no_effect, "offload is off"};
      if (device == "cpu" || facts.stage != 3)
        return {State::no_effect, "no parameters are offloaded to nvme"};
      return {};
    },
    "device none, cpu, or not stage 3: no_effect; nvme: honoured"};

constexpr Rule kParameterPath{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      const Judgement judgement = kOfParametersOnDisk.judge(facts, spec, value);
      return judgement.state == State::honoured ? rules::judge_drives(value) : judgement;
    },
    "device none, cpu, or not stage 3: no_effect; nvme: honoured, an empty name: error"};

constexpr Rule kFiles{[](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
                        if (!facts.nvme) return {State::no_effect, "nothing is offloaded to nvme"};
                        return {};
                      },
                      "no offload to nvme: no_effect; else honoured"};

constexpr Rule kGds{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      if (facts.nvme && to_boolean(value).value_or(false))
        return {State::no_effect, "GPUDirect Storage is not used: files go through host memory",
                false, true};
      Judgement judgement = kFiles.judge(facts, spec, value);
      if (judgement.state == State::honoured) judgement = {State::no_effect, "off"};
      return judgement;
    },
    "no_effect; true with offload to nvme: with a warning, as files go through host memory"};

}  // namespace

std::vector<KeySpec> offload() {
  constexpr std::string_view param = "zero_optimization.offload_param";
  return {
      {.key = param, .type = Type::section, .nullable = true},
      {.key = "zero_optimization.offload_param.device",
       .type = Type::choice,
       .fallback = "\"none\"",
       .rule = &kParameterDevice,
       .choices = "none|cpu|nvme"},
      {.key = "zero_optimization.offload_param.nvme_path",
       .type = Type::string_or_strings,
       .note = "a directory on the drive, or one for each of several drives",
       .rule = &kParameterPath},
      {.key = "zero_optimization.offload_param.buffer_count",
       .type = Type::integer,
       .fallback = "5",
       .note = "the plan has the buffers that copies need",
       .rule = &kNotNeeded,
       .min = 0},
      {.key = "zero_optimization.offload_param.buffer_size",
       .type = Type::integer,
       .fallback = "100000000",
       .note = "buffers are as large as the layers",
       .rule = &kNotNeeded,
       .min = 0},
      {.key = "zero_optimization.offload_param.max_in_cpu",
       .type = Type::integer,
       .fallback = "1000000000",
       .note = "of parameters on nvme: elements of each rank that stay in the host's memory",
       .rule = &kOfParametersOnDisk,
       .min = 0},
      {.key = "zero_optimization.offload_param.pin_memory",
       .fallback = "true",
       .note = "for the copies of GPUs",
       .rule = &kIfOffloaded},
      {.key = "zero_optimization.offload_optimizer", .type = Type::section, .nullable = true},
      {.key = "zero_optimization.offload_optimizer.device",
       .type = Type::choice,
       .fallback = "\"none\"",
       .rule = &kOptimizerDevice,
       .choices = "none|cpu|nvme"},
      {.key = "zero_optimization.offload_optimizer.nvme_path",
       .type = Type::string_or_strings,
       .note = "a directory on the drive, or one for each of several drives",
       .rule = &kOptimizerPath},
      {.key = "zero_optimization.offload_optimizer.buffer_count",
       .type = Type::integer,
       .fallback = "4",
       .note = "the plan has the buffers that copies need",
       .rule = &kNotNeeded,
       .min = 0},
      {.key = "zero_optimization.offload_optimizer.pin_memory",
       .fallback = "true",
       .note = "for the copies of GPUs",
       .rule = &kIfOffloaded},
      {.key = "zero_optimization.offload_optimizer.pipeline_read",
       .fallback = "false",
       .note = "transfers always run beside the update",
       .rule = &kNotNeeded},
      {.key = "zero_optimization.offload_optimizer.pipeline_write",
       .fallback = "false",
       .note = "transfers always run beside the update",
       .rule = &kNotNeeded},
      {.key = "zero_optimization.offload_optimizer.fast_init",
       .fallback = "false",
       .note = "memory and files begin as zeros",
       .rule = &kNotNeeded},
      {.key = "zero_optimization.offload_optimizer.ratio",
       .type = Type::real,
       .fallback = "1.0",
       .note = "the least share of the optimizer's state that is offloaded, in whole layers; the "
               "device has and updates the rest, at every stage",
       .rule = &kIfOffloaded,
       .min = 0,
       .max = 1},
      {.key = "zero_optimization.offload_optimizer.super_offload",
       .fallback = "false",
       .note = "the host always updates layer by layer with copies beside it, when the norm is "
               "known; none "
               "of it during the backward pass",
       .rule = &kNotNeeded},
      {.key = "zero_optimization.offload_optimizer.cpuadam_cores_perc",
       .type = Type::real,
       .fallback = "0.8",
       .note = "the host updates with all threads of the rank",
       .rule = &kNotNeeded,
       .min = 0,
       .max = 1},
      {.key = "aio", .type = Type::section, .nullable = true},
      {.key = "aio.block_size",
       .type = Type::integer,
       .fallback = "1048576",
       .note = "bytes of a request, rounded up to a multiple of 4096",
       .rule = &kFiles,
       .min = 1,
       .max = kMostAioBlock},
      {.key = "aio.queue_depth",
       .type = Type::integer,
       .fallback = "128",
       .note = "requests in flight of each thread; DeepSpeed's default is 8",
       .rule = &kFiles,
       .min = 1,
       .max = kMostAioDepth},
      {.key = "aio.intra_op_parallelism",
       .type = Type::integer,
       .fallback = "1",
       .rule = &kFiles,
       .min = 1,
       .max = kMostAioThreads},
      {.key = "aio.thread_count",
       .type = Type::integer,
       .fallback = "1",
       .state = State::no_effect,
       .note = "DeepSpeed ignores it: the key is intra_op_parallelism",
       .min = 1},
      {.key = "aio.single_submit", .fallback = "false", .rule = &kFiles},
      {.key = "aio.overlap_events", .fallback = "true", .rule = &kFiles},
      {.key = "aio.use_gds", .fallback = "false", .rule = &kGds},
  };
}

}  // namespace dstrain::keys
