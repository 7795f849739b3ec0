// Section dstrain: the keys that DeepSpeed does not have.
#include <fmt/core.h>

#include "runtime/config/family/family.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/text.h"

namespace dstrain::keys {
namespace {

constexpr Rule kSharding{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      const std::optional<int64_t> stage = stage_of_sharding(value.text);
      if (stage && facts.stage != *stage && facts.legal("zero_optimization.stage"))
        return {State::error, fmt::format("is stage {}, zero_optimization.stage says {}: keep one",
                                          *stage, facts.stage)};
      std::string text = fmt::format("ZeRO stage {}", stage.value_or(facts.stage));
      if (value.text == "HYBRID_SHARD")
        text += facts.integer("zero_optimization.mics_shard_size") > 0 ||
                        facts.integer("zero_optimization.zero_hpz_partition_size") > 1
                    ? " within groups of ranks"
                    : " within each host";
      return {State::honoured, text};
    },
    "honoured; another stage in zero_optimization.stage: error"};

bool is_power_sgd(std::string_view hook) {
  return hook.ends_with("powerSGD");
}

constexpr std::string_view kLocalSgd = "post_localSGD";

constexpr Rule kHook{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      if (value.text == "noop") return {State::no_effect, "gradients travel as they are"};
      if (value.text.ends_with("_compress")) return {};
      if (is_power_sgd(value.text) && facts.stage > 1)
        return {State::refused,
                fmt::format("{} needs whole gradients on every rank: use stage 0 or 1, "
                            "or fp16_compress or bf16_compress",
                            value.text)};
      if (value.text == kLocalSgd && facts.stage > 0)
        return {State::refused,
                "post_localSGD gives groups of ranks weights and optimizer state of their own: use "
                "stage 0, or powerSGD at stage 1"};
      return {};
    },
    "noop: no_effect; fp16_compress, bf16_compress: honoured; powerSGD, batched_powerSGD: honoured "
    "at stages 0 and 1, else refused; post_localSGD: honoured at stage 0, else refused"};

constexpr Rule kOfLocalSgd{[](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
                             if (facts.text("dstrain.comm_hook.type") != kLocalSgd)
                               return {State::no_effect, "the hook is not post_localSGD"};
                             return {};
                           },
                           "post_localSGD: honoured; else no_effect"};

constexpr Rule kOfPowerSgd{[](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
                             if (!is_power_sgd(facts.text("dstrain.comm_hook.type")))
                               return {State::no_effect, "the hook is not powerSGD"};
                             return {};
                           },
                           "powerSGD, batched_powerSGD: honoured; else no_effect"};

constexpr Rule kOfPlainPowerSgd{[](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
                                  if (facts.text("dstrain.comm_hook.type") != "powerSGD")
                                    return {State::no_effect, "the hook is not powerSGD"};
                                  return {};
                                },
                                "powerSGD: honoured; else no_effect"};

constexpr Rule kOptimizerOn{
    [](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
      if (facts.text("zero_optimization.offload_optimizer.device") == "none")
        return {State::no_effect, "the optimizer is not offloaded"};
      return {};
    },
    "offload_optimizer.device none: no_effect; else honoured"};

constexpr Rule kReadAhead{[](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
                            if (facts.text("zero_optimization.offload_optimizer.device") != "nvme")
                              return {State::no_effect, "no optimizer state is offloaded to nvme"};
                            return {};
                          },
                          "offload_optimizer.device not nvme: no_effect; else honoured"};

constexpr Rule kActivations{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      if (value.text == "none") return {State::no_effect, "off"};
      if (value.text == "cpu") return {State::honoured, "activations wait in the host's memory"};
      const bool elsewhere =
          facts.text("zero_optimization.offload_optimizer.device") == "nvme" ||
          (facts.stage == 3 && facts.text("zero_optimization.offload_param.device") == "nvme");
      if (!elsewhere && rules::lacks_drive(facts, "dstrain.offload"))
        return {State::error,
                "nvme needs dstrain.offload.nvme_path: a directory on the drive, or one for each"};
      return {State::honoured, "activations wait on disk"};
    },
    "none: no_effect; cpu, nvme: honoured"};

constexpr Rule kLossChunks{
    [](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
      if (!facts.family->reads_tokens())
        return {State::no_effect, fmt::format("the {} has no vocabulary", facts.family->title)};
      if (facts.integer("dstrain.loss_chunks") <= 1) return {State::no_effect, "off"};
      return {State::honoured, "logits are computed in pieces of rows"};
    },
    "1, or a model without tokens: no_effect; else honoured"};

constexpr Rule kMlpChunks{
    [](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
      if (facts.integer("dstrain.mlp_chunks") <= 1) return {State::no_effect, "off"};
      return {State::honoured, "MLPs are computed in pieces of rows, and again in backward passes"};
    },
    "1: no_effect; else honoured"};

constexpr Rule kGatherAgain{
    [](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
      if (facts.integer("tensor_parallel.autotp_size") <= 1)
        return {State::no_effect, "no layer is divided among ranks"};
      if (facts.recomputes && lower_case(facts.text("dstrain.recompute")) != "selective")
        return {State::no_effect, "recompute of layers gathers again in any case"};
      return {};
    },
    "tensor_parallel.autotp_size up to 1, or recompute of layers: no_effect; else honoured"};

constexpr Rule kSequence{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      if (facts.integer("sequence_parallel_size") <= 1)
        return {State::no_effect, "sequence parallelism is off"};
      if (value.text == "ring")
        return {State::not_yet, "ring attention is not available yet: use \"ulysses\""};
      return {};
    },
    "sequence_parallel_size 1: no_effect; ulysses: honoured; ring: not_yet"};

constexpr Rule kActivationPath{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      if (facts.text("dstrain.offload.activations") != "nvme")
        return {State::no_effect, "no activations are offloaded to nvme"};
      return rules::judge_drives(value);
    },
    "activations not on nvme: no_effect; else honoured, an empty name: error"};

}  // namespace

std::vector<KeySpec> dstrain() {
  const auto count = [](std::string_view key, std::string_view fallback, double min, double max,
                        std::string_view note = {}) {
    return KeySpec{.key = key,
                   .type = Type::integer,
                   .fallback = fallback,
                   .note = note,
                   .min = min,
                   .max = max};
  };
  return {
      {.key = "dstrain", .type = Type::section},
      {.key = "dstrain.model", .type = Type::section},
      count("dstrain.steps", "1000", 0, kMaxCount, "optimizer steps; 0 writes the initial weights"),
      {.key = "dstrain.seed", .type = Type::integer, .fallback = "1337", .min = 0},
      count("dstrain.eval_interval", "0", 0, kMaxCount,
            "steps between two validations; 0: one, after the last step"),
      count("dstrain.eval_samples", "160", 1, kMaxCount,
            "samples of a validation, the first ones of its part, on any number of ranks"),
      {.key = "dstrain.eval_batches",
       .type = Type::integer,
       .state = State::refused,
       .note = "a validation is counted in samples, so that it does not depend on the number of "
               "ranks: give dstrain.eval_samples"},
      count("dstrain.max_skipped_steps", "50", 1, kMaxCount,
            "steps in a row without a finite gradient that end a run; not those of an fp16 run "
            "that looks for its loss scale"),
      count("dstrain.timeout_s", "600", 1, 1e6,
            "seconds that one instruction, or a wait for another rank, may last"),
      count("dstrain.silence_s", "5", 3, 1e6,
            "seconds without a word after which a host is taken for lost"),
      {.key = "dstrain.weight_decay_exclude",
       .type = Type::strings,
       .fallback = "[]",
       .note = "patterns of parameter names without weight decay"},
      {.key = "dstrain.reduce",
       .type = Type::choice,
       .fallback = "\"boundary\"",
       .note = "when ranks add gradients: once per step, or after each micro-batch",
       .choices = "boundary|micro_batch"},
      {.key = "dstrain.sequence_parallel",
       .type = Type::choice,
       .fallback = "\"ulysses\"",
       .note =
           "how sequence ranks compute attention; ulysses: each has all tokens of a part of the "
           "heads",
       .rule = &kSequence,
       .choices = "ulysses|ring"},
      {.key = "dstrain.ignore",
       .type = Type::strings,
       .fallback = "[]",
       .note = "keys of this file to treat as if they were not there: [\"amp\"]"},
      {.key = "dstrain.trace",
       .type = Type::string,
       .note = "file for the times of the first six steps, for Perfetto; unset: none"},
      {.key = "dstrain.cuda_graph",
       .type = Type::choice,
       .fallback = "\"auto\"",
       .note = "replay a step as graphs; auto: on a GPU, where no part of the step is the "
               "host's; on: an "
               "error on the CPU",
       .choices = "auto|on|off"},
      {.key = "dstrain.deterministic_collectives",
       .note = "GPUs add gradients in rank order, in f32, rounded once, as CPUs always do; false: "
               "by NCCL, in its "
               "order, rounding as it does; unset: true up to 8 ranks that add them"},
      {.key = "dstrain.comm_hook", .type = Type::section},
      {.key = "dstrain.comm_hook.type",
       .type = Type::choice,
       .fallback = "\"noop\"",
       .note = "PyTorch's communication hook: fp16_compress and bf16_compress are "
               "communication_data_type, which with powerSGD is the type of the factors",
       .rule = &kHook,
       .choices = "noop|fp16_compress|bf16_compress|powerSGD|batched_powerSGD|post_localSGD"},
      {.key = "dstrain.comm_hook.matrix_approximation_rank",
       .type = Type::integer,
       .fallback = "1",
       .note = "columns of the two factors of a gradient",
       .rule = &kOfPowerSgd,
       .min = 1,
       .max = 1024},
      {.key = "dstrain.comm_hook.start_powerSGD_iter",
       .type = Type::integer,
       .fallback = "1000",
       .note = "steps in which gradients travel whole before powerSGD starts; skipped steps do not "
               "count",
       .rule = &kOfPowerSgd,
       .min = 0,
       .max = kMaxCount},
      {.key = "dstrain.comm_hook.min_compression_rate",
       .type = Type::real,
       .fallback = "2",
       .note = "a gradient travels as factors if they have so many times fewer elements",
       .rule = &kOfPlainPowerSgd,
       .min = 0,
       .open = true},
      {.key = "dstrain.comm_hook.use_error_feedback",
       .fallback = "true",
       .note = "what the factors lose is added to the next step's gradient",
       .rule = &kOfPowerSgd},
      {.key = "dstrain.comm_hook.warm_start",
       .fallback = "true",
       .note = "each step goes on with the factor of the step before, which loses less; false: it "
               "begins with random values",
       .rule = &kOfPowerSgd},
      {.key = "dstrain.comm_hook.orthogonalization_epsilon",
       .type = Type::real,
       .fallback = "0",
       .note = "added to the length of a column before the division by it",
       .rule = &kOfPowerSgd,
       .min = 0},
      {.key = "dstrain.comm_hook.random_seed",
       .type = Type::integer,
       .fallback = "0",
       .note = "of the first factor, and without warm_start of each step's",
       .rule = &kOfPowerSgd,
       .min = 0,
       .max = kMaxCount},
      {.key = "dstrain.comm_hook.start_localSGD_iter",
       .type = Type::integer,
       .fallback = "0",
       .note = "steps in which all ranks add gradients before post_localSGD starts; skipped steps "
               "do not count",
       .rule = &kOfLocalSgd,
       .min = 0,
       .max = kMaxCount},
      {.key = "dstrain.comm_hook.period",
       .type = Type::integer,
       .fallback = "4",
       .note = "updates from one average of the weights to the next",
       .rule = &kOfLocalSgd,
       .min = 1,
       .max = kMaxCount},
      {.key = "dstrain.comm_hook.post_local_gradient_allreduce",
       .fallback = "true",
       .note = "the ranks of a host add their gradients and have the same weights; false: each "
               "rank is alone",
       .rule = &kOfLocalSgd},
      {.key = "dstrain.comm_hook.batch_tensors_with_same_shape",
       .fallback = "false",
       .state = State::no_effect,
       .note = "the factors of all layers travel in one message each"},
      {.key = "dstrain.comm_hook.compression_stats_logging_frequency",
       .type = Type::integer,
       .fallback = "10000",
       .state = State::no_effect,
       .note = "the start of a run and dstrain plan say what is sent",
       .min = 1},

      {.key = "dstrain.device_memory",
       .type = Type::bytes,
       .fallback = "0",
       .note = "bytes of each rank's device that the plan may use; 0: all that is free",
       .min = 0},
      {.key = "dstrain.offload", .type = Type::section},
      {.key = "dstrain.offload.optimizer_on",
       .type = Type::choice,
       .fallback = "\"auto\"",
       .note = "who updates with offloaded state: host, beside the state; device, which the state "
               "passes layer by layer; auto: host",
       .rule = &kOptimizerOn,
       .choices = "auto|host|device"},
      {.key = "dstrain.offload.activations",
       .type = Type::choice,
       .fallback = "\"none\"",
       .note =
           "where activations are from the forward pass to the backward pass; with recompute the "
           "inputs of layers",
       .rule = &kActivations,
       .choices = "none|cpu|nvme"},
      {.key = "dstrain.offload.nvme_path",
       .type = Type::string_or_strings,
       .note = "for activations on nvme: a directory on the drive, or one for each of several "
               "drives; without it those of the other sections",
       .rule = &kActivationPath},
      {.key = "dstrain.offload.read_ahead",
       .type = Type::bytes,
       .fallback = "0",
       .note = "bytes of optimizer state on nvme that a rank reads during the backward pass, in as "
               "much more of the host's memory; in whole layers",
       .rule = &kReadAhead,
       .min = 0},
      {.key = "dstrain.sharding",
       .type = Type::choice,
       .note = "FSDP's name of a stage: NO_SHARD 0, SHARD_GRAD_OP and _HYBRID_SHARD_ZERO2 2, "
               "FULL_SHARD 3; "
               "HYBRID_SHARD 3 with parameters divided among the ranks of a host, or "
               "mics_shard_size ranks",
       .rule = &kSharding,
       .choices = "NO_SHARD|SHARD_GRAD_OP|FULL_SHARD|HYBRID_SHARD|_HYBRID_SHARD_ZERO2"},
      {.key = "dstrain.recompute",
       .type = Type::count_or_choice,
       .fallback = "\"none\"",
       .note = "activations: as pipeline.activation_checkpoint_interval, or only what is cheap",
       .rule = &rules::kRecompute,
       .min = 0,
       .choices = "none|selective"},
      {.key = "dstrain.gather_again",
       .note = "the backward pass gathers the rows of tensor ranks again, instead of keeping them "
               "from the forward pass: less memory, more traffic, the same numbers; unset: where "
               "the memory suffices in no other way",
       .rule = &kGatherAgain},
      {.key = "dstrain.loss_chunks",
       .type = Type::integer,
       .fallback = "1",
       .note = "pieces of a micro-batch's rows in which logits and losses are computed, so that "
               "logits are never whole: for long sequences with large vocabularies; about so "
               "many, with the same numbers on the CPU; unset: 1, or where the memory suffices in "
               "no other way as few as fit",
       .rule = &kLossChunks,
       .min = 1},
      {.key = "dstrain.mlp_chunks",
       .type = Type::integer,
       .fallback = "1",
       .note =
           "pieces of a micro-batch's rows in which the MLP of a layer is computed, so that its "
           "hidden values are never whole: for long sequences; the backward pass computes them "
           "again; about so many, with the same numbers on the CPU; unset: as loss_chunks",
       .rule = &kMlpChunks,
       .min = 1},
  };
}

}  // namespace dstrain::keys
