// Section zero_optimization: the stage and its parameters, without offload.
#include <fmt/core.h>

#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"

namespace dstrain::keys {
namespace {

constexpr Rule kStage3{
    [](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
      if (facts.stage == 3) return {};
      return {State::no_effect, fmt::format("matters at stage 3; the stage is {}", facts.stage)};
    },
    "stages 0, 1, 2: no_effect; 3: honoured"};

constexpr Rule kEven{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      const int64_t n = to_integer(value).value_or(0);
      if (facts.stage >= 1 && facts.stage <= 2 && n % 2 != 0)
        return {State::error, fmt::format("stages 1 and 2 need an even number: use {}", n + 1)};
      return {State::no_effect, std::string(spec.note)};
    },
    "no_effect; odd at stages 1, 2: error"};

// How many ranks a shard has. hpZ is off with 1 rank, MiCS below 1.
constexpr Rule kShards{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      const int64_t ranks = to_integer(value).value_or(0);
      if (ranks < (spec.min < 0 ? 1 : 2)) return {State::no_effect, "off"};
      if (facts.stage != 3)
        return {State::no_effect, fmt::format("matters at stage 3; the stage is {}", facts.stage)};
      if (facts.text("dstrain.sharding") == "FULL_SHARD")
        return {State::no_effect, "dstrain.sharding is FULL_SHARD: all ranks"};
      return {State::honoured,
              ranks == 1 && facts.on("zero_optimization.zero_quantized_weights")
                  ? "every rank has all parameters, which travel as int8 once a step"
              : ranks == 1 ? "every rank has all parameters"
                           : fmt::format("parameters are divided among {} ranks in a row", ranks)};
    },
    "off, or not stage 3: no_effect; else honoured"};

// ZeRO++'s quantized communication, which DeepSpeed has at stage 3 alone.
constexpr Rule kQuantized{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      if (!to_boolean(value).value_or(false)) return {State::no_effect, "off"};
      if (facts.stage != 3)
        return {State::no_effect, fmt::format("matters at stage 3; the stage is {}", facts.stage)};
      return {State::honoured, std::string(spec.note)};
    },
    "false, not stage 3, or one data-parallel rank: no_effect; else honoured"};

constexpr Rule kLegacy{[](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
                         if (!to_boolean(value).value_or(false)) return {State::no_effect, "off"};
                         return {State::refused, std::string(spec.note)};
                       },
                       "false: no_effect; true: refused"};

constexpr Rule kRemoved{[](const Facts&, const KeySpec& spec, const Node&) -> Judgement {
                          return {State::refused, std::string(spec.note)};
                        },
                        "null: no_effect; else refused"};

// The section has the reason, so that a run prints it once.
constexpr Rule kOfZenflow{[](const Facts&, const KeySpec& spec, const Node&) -> Judgement {
                            return {State::refused, std::string(spec.note), true};
                          },
                          "refused"};

// LoCo, the error feedback of quantized gradients.
constexpr Rule kLoco{
    [](const Facts& facts, const KeySpec& spec, const Node&) -> Judgement {
      if (facts.stage != 3)
        return {State::no_effect, fmt::format("matters at stage 3; the stage is {}", facts.stage)};
      if (!facts.on("zero_optimization.zero_quantized_gradients"))
        return {State::refused,
                "removed from DeepSpeed (0.19.8); here it is the error feedback of quantized "
                "gradients: set zero_quantized_gradients, or remove it"};
      return {State::honoured, std::string(spec.note)};
    },
    "null, or not stage 3: no_effect; without zero_quantized_gradients: refused; else honoured"};
constexpr Rule kLocoPart{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      Judgement of_section = kLoco.judge(facts, spec, value);
      if (is_error(of_section.state))
        return {of_section.state, "inside zero_optimization.zeropp_loco_param", true};
      return of_section;
    },
    "as the section"};

constexpr Rule kOffloadFlag{[](const Facts&, const KeySpec&, const Node& value) -> Judgement {
                              if (!to_boolean(value).value_or(false))
                                return {State::no_effect, "offload is off"};
                              return {};
                            },
                            "false: no_effect; true: honoured"};
constexpr double kMostShardRanks = 1 << 20;

KeySpec fixed(std::string_view key, std::string_view fallback, std::string_view why) {
  return {.key = key, .fallback = fallback, .state = State::no_effect, .note = why};
}

// Returns a key of section zenflow.
KeySpec of_zenflow(std::string_view key, Type type, std::string_view fallback) {
  return {.key = key,
          .type = type,
          .fallback = fallback,
          .note = "ZenFlow is not part of dstrain",
          .rule = &kOfZenflow};
}

KeySpec stage3_count(std::string_view key, std::string_view fallback, std::string_view note = {}) {
  return {.key = key,
          .type = Type::integer,
          .fallback = fallback,
          .note = note,
          .rule = &kStage3,
          .min = 0};
}

KeySpec renamed(std::string_view key, std::string_view target, Type type = Type::integer) {
  return {.key = key, .type = type, .alias = target};
}

}  // namespace

std::vector<KeySpec> zero() {
  constexpr std::string_view layout = "every rank owns one slice of each layer at every stage";
  constexpr std::string_view zenflow =
      "ZenFlow updates most weights late, by sums of several steps' gradients, which changes "
      "what is learned: remove the section; offload_optimizer updates every weight in every step, "
      "with copies beside the update";
  constexpr std::string_view units = "the layers are the units";
  return {
      {.key = "zero_optimization",
       .type = Type::section,
       .note = "true and false: the old form of stage 1 and 0"},
      {.key = "zero_optimization.stage",
       .type = Type::integer,
       .fallback = "0",
       .note = "what is sharded: 1 optimizer state, 2 and gradients, 3 and parameters",
       .min = 0,
       .max = 3},
      {.key = "zero_optimization.reduce_bucket_size",
       .type = Type::integer,
       .fallback = "500000000",
       .note = "gradient elements under way at a time, one layer at least; auto: the model's width "
               "squared; no_effect where gradients travel once a step in the type that they are "
               "held in",
       .min = 0},
      {.key = "zero_optimization.allgather_bucket_size",
       .type = Type::integer,
       .fallback = "500000000",
       .note = "parameters are gathered in place, layer by layer: there is no bucket",
       .rule = &kEven,
       .min = 0},
      {.key = "zero_optimization.overlap_comm",
       .note = "messages beside computation, at every stage; unset: true"},
      {.key = "zero_optimization.sub_group_size",
       .type = Type::integer,
       .fallback = "1000000000",
       .state = State::no_effect,
       .note = "the optimizer works in place, layer by layer",
       .min = 0},
      fixed("zero_optimization.compute_grad_norm", "true",
            "the norm is always computed: clipping and metrics.jsonl take it"),
      {.key = "zero_optimization.parameter_alignment",
       .type = Type::integer,
       .state = State::no_effect,
       .note = "the plan aligns every slice itself",
       .min = 0},
      fixed("zero_optimization.contiguous_gradients", "true",
            "the plan places gradients contiguously"),
      fixed("zero_optimization.reduce_scatter", "true", layout),
      fixed("zero_optimization.use_multi_rank_bucket_allreduce", "true", layout),
      fixed("zero_optimization.allgather_partitions", "true", "DeepSpeed never uses it"),
      fixed("zero_optimization.round_robin_gradients", "false", layout),
      fixed("zero_optimization.load_from_fp32_weights", "true", "masters always come from fp32"),
      fixed("zero_optimization.elastic_checkpoint", "false",
            "checkpoints load at any number of ranks"),
      fixed("zero_optimization.ignore_unused_parameters", "true",
            "every parameter that is trained has a gradient"),
      fixed("zero_optimization.memory_efficient_linear", "true", "the plan decides what is kept"),
      fixed("zero_optimization.pipeline_loading_checkpoint", "false",
            "weights are read layer by layer"),
      fixed("zero_optimization.override_module_apply", "true", "there are no Python modules"),
      fixed("zero_optimization.log_trace_cache_warnings", "false", "there is no trace to cache"),
      fixed("zero_optimization.enable_sanity_checks", "false", "plans are always verified"),
      fixed("zero_optimization.save_muon_momentum_buffer_in_memory", "false",
            "the momentum is part of the optimizer's state"),
      {.key = "zero_optimization.legacy_stage1",
       .fallback = "false",
       .note = "DeepSpeed refuses it too: use false",
       .rule = &kLegacy},

      stage3_count(
          "zero_optimization.stage3_prefetch_bucket_size", "50000000",
          "the largest layer gathered ahead, in elements; auto: 0.9 times the model's width "
          "squared"),
      stage3_count("zero_optimization.stage3_param_persistence_threshold", "100000",
                   "a layer of smaller parameters alone stays gathered; auto: 10 times the model's "
                   "width"),
      stage3_count("zero_optimization.stage3_model_persistence_threshold", "9223372036854775807",
                   "elements that stay gathered for that reason"),
      stage3_count("zero_optimization.stage3_max_live_parameters", "1000000000",
                   "elements gathered at a time, one layer at least"),
      stage3_count("zero_optimization.stage3_max_reuse_distance", "1000000000",
                   "elements used between two uses, up to which a layer stays gathered"),
      {.key = "zero_optimization.stage3_module_granularity_threshold",
       .type = Type::integer,
       .fallback = "0",
       .state = State::no_effect,
       .note = units,
       .min = 0},
      {.key = "zero_optimization.stage3_partition_stream_chunk_size",
       .type = Type::integer,
       .fallback = "0",
       .state = State::no_effect,
       .note = "every rank makes or reads its own slice alone",
       .min = 0},
      fixed("zero_optimization.stage3_gather_16bit_weights_on_model_save", "false",
            "model.safetensors always holds all weights"),
      fixed("zero_optimization.stage3_use_all_reduce_for_fetch_params", "false",
            "parameters are gathered as slices"),
      fixed("zero_optimization.stage3_allgather_sequential", "false",
            "gathers always follow one another, in the order of their use"),
      renamed("zero_optimization.prefetch_bucket_size",
              "zero_optimization.stage3_prefetch_bucket_size"),
      renamed("zero_optimization.param_persistence_threshold",
              "zero_optimization.stage3_param_persistence_threshold"),
      renamed("zero_optimization.model_persistence_threshold",
              "zero_optimization.stage3_model_persistence_threshold"),
      renamed("zero_optimization.max_live_parameters",
              "zero_optimization.stage3_max_live_parameters"),
      renamed("zero_optimization.max_reuse_distance",
              "zero_optimization.stage3_max_reuse_distance"),
      renamed("zero_optimization.module_granularity_threshold",
              "zero_optimization.stage3_module_granularity_threshold"),
      renamed("zero_optimization.partition_stream_chunk_size",
              "zero_optimization.stage3_partition_stream_chunk_size"),
      renamed("zero_optimization.gather_16bit_weights_on_model_save",
              "zero_optimization.stage3_gather_16bit_weights_on_model_save", Type::boolean),
      renamed("zero_optimization.stage3_gather_fp16_weights_on_model_save",
              "zero_optimization.stage3_gather_16bit_weights_on_model_save", Type::boolean),
      renamed("zero_optimization.use_all_reduce_for_fetch_params",
              "zero_optimization.stage3_use_all_reduce_for_fetch_params", Type::boolean),
      renamed("zero_optimization.allgather_sequential",
              "zero_optimization.stage3_allgather_sequential", Type::boolean),

      {.key = "zero_optimization.cpu_offload",
       .rule = &kOffloadFlag,
       .alias = "zero_optimization.offload_optimizer"},
      {.key = "zero_optimization.cpu_offload_param",
       .rule = &kOffloadFlag,
       .alias = "zero_optimization.offload_param"},
      {.key = "zero_optimization.cpu_offload_use_pin_memory",
       .state = State::no_effect,
       .note = "an old name that DeepSpeed ignores: use pin_memory in the offload sections"},

      {.key = "zero_optimization.zero_hpz_partition_size",
       .type = Type::integer,
       .fallback = "1",
       .note = "consecutive ranks among which parameters are divided, those of a host: gathers "
               "stay within them; as "
               "mics_shard_size",
       .rule = &kShards,
       .min = 0,
       .max = kMostShardRanks},
      {.key = "zero_optimization.zero_quantized_weights",
       .fallback = "false",
       .note = "parameters are gathered as int8 in blocks of 256: 0.51 of the bytes of 16 bits",
       .rule = &kQuantized},
      fixed("zero_optimization.zero_quantized_nontrainable_weights", "false",
            "weights that are not trained are packed by dstrain.lora.base"),
      {.key = "zero_optimization.zero_quantized_gradients",
       .fallback = "false",
       .note =
           "gradients travel as int4 in blocks of 128, within hosts and then among them: 0.27 of "
           "the bytes of 16 bits a hop",
       .rule = &kQuantized},
      {.key = "zero_optimization.zeropp_loco_param",
       .type = Type::section,
       .note =
           "what packing gradients loses is added to those of the next step (LoCo); removed from "
           "DeepSpeed (0.19.8)",
       .rule = &kLoco,
       .nullable = true},
      {.key = "zero_optimization.zeropp_loco_param.err_beta",
       .type = Type::real,
       .fallback = "0.8",
       .note = "the share of the error that stays when a step's loss is added to it",
       .rule = &kLocoPart,
       .min = 0,
       .max = 1},
      {.key = "zero_optimization.zeropp_loco_param.reset_T",
       .type = Type::integer,
       .fallback = "1024",
       .note = "updates after which the error begins at 0 again",
       .rule = &kLocoPart,
       .min = 1},
      {.key = "zero_optimization.mics_shard_size",
       .type = Type::integer,
       .fallback = "-1",
       .note =
           "consecutive ranks among which parameters are divided; -1: all; removed from DeepSpeed "
           "(0.19.8)",
       .rule = &kShards,
       .min = -1,
       .max = kMostShardRanks},
      {.key = "zero_optimization.mics_hierarchical_params_gather",
       .fallback = "false",
       .state = State::no_effect,
       .note =
           "removed from DeepSpeed (0.19.8); a gather over several hosts brings each byte to each "
           "host once, with or without it"},

      {.key = "zero_optimization.leaf_module",
       .type = Type::section,
       .state = State::no_effect,
       .note = units,
       .nullable = true},
      {.key = "zero_optimization.leaf_module.classes",
       .type = Type::strings,
       .state = State::no_effect,
       .note = units},
      {.key = "zero_optimization.leaf_module.names",
       .type = Type::strings,
       .state = State::no_effect,
       .note = units},
      {.key = "zero_optimization.leaf_module.name_suffixes",
       .type = Type::strings,
       .state = State::no_effect,
       .note = units},
      {.key = "zero_optimization.zenflow",
       .type = Type::section,
       .note = zenflow,
       .rule = &kRemoved,
       .nullable = true},
      of_zenflow("zero_optimization.zenflow.topk_ratio", Type::real, "0.1"),
      of_zenflow("zero_optimization.zenflow.select_strategy", Type::string, "\"auto\""),
      of_zenflow("zero_optimization.zenflow.select_interval", Type::integer, ""),
      of_zenflow("zero_optimization.zenflow.update_interval", Type::integer, ""),
      of_zenflow("zero_optimization.zenflow.overlap_step", Type::boolean, "false"),
      of_zenflow("zero_optimization.zenflow.offload", Type::boolean, "false"),
      of_zenflow("zero_optimization.zenflow.auto_ratio", Type::real, "0.99"),
      of_zenflow("zero_optimization.zenflow.full_warm_up_rounds", Type::integer, "0"),
      of_zenflow("zero_optimization.zenflow.steps_per_epoch", Type::integer, ""),
      of_zenflow("zero_optimization.zenflow.pt_reserved_cores_perc", Type::real, "0.5"),
  };
}

}  // namespace dstrain::keys
