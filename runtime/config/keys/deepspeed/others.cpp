// Sections that do not concern the training step: checkpoints, data schedules, compression, inference.
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"

namespace dstrain::keys {
namespace {

constexpr Rule kDataEfficiency{
    [](const Facts& facts, const KeySpec& spec, const Node&) -> Judgement {
      if (!facts.on("data_efficiency.enabled") ||
          (!facts.on("data_efficiency.data_sampling.enabled") &&
           !facts.on("data_efficiency.data_routing.enabled")))
        return {State::no_effect, "data_efficiency is off"};
      return {State::not_yet, "data_efficiency is not available yet: set enabled to false",
              spec.key != "data_efficiency.enabled"};
    },
    "off, or neither sampling nor routing on: no_effect; else not_yet"};

constexpr Rule kLocalStorage{[](const Facts&, const KeySpec&, const Node& value) -> Judgement {
                               if (!to_boolean(value).value_or(false))
                                 return {State::no_effect, "off"};
                               return {State::no_effect,
                                       "checkpoints go to --output, which all hosts must share",
                                       false, true};
                             },
                             "no_effect; true: with a warning, as all hosts share one folder"};

// DeepSpeed turns it off with false alone, in place of the section.
constexpr Rule kDataStates{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      if (value.is(Node::Kind::boolean) && !value.boolean) return {State::no_effect, "off"};
      if (!value.is(Node::Kind::object)) return {State::refused, std::string(spec.note)};
      return rules::kRefusedUnlessOff.judge(facts, spec, value);
    },
    "false, empty, or `enabled` false: no_effect; else refused"};

KeySpec refused(std::string_view key, const Rule& rule, std::string_view note) {
  return {.key = key, .type = Type::opaque, .note = note, .rule = &rule};
}

KeySpec fixed(std::string_view key, Type type, std::string_view fallback, std::string_view note) {
  return {.key = key, .type = type, .fallback = fallback, .state = State::no_effect, .note = note};
}

}  // namespace

std::vector<KeySpec> others() {
  constexpr std::string_view logical = "checkpoints hold logical tensors that any run can load";
  constexpr std::string_view writer = "each rank writes its slices itself";
  constexpr std::string_view compile = "nothing is compiled while a run goes on";
  const auto against = [](std::string_view key, Type type, std::string_view fallback) {
    return KeySpec{
        .key = key, .type = type, .fallback = fallback, .rule = &rules::kRefusedIfEnabled};
  };
  const auto data = [](std::string_view key, Type type, std::string_view fallback) {
    return KeySpec{.key = key, .type = type, .fallback = fallback, .rule = &kDataEfficiency};
  };
  const auto off_section = [](std::string_view key, std::string_view note) {
    return KeySpec{
        .key = key, .type = Type::section, .note = note, .rule = &rules::kRefusedIfEnabled};
  };
  const auto warned = [](std::string_view key, Type type, std::string_view fallback) {
    return KeySpec{.key = key, .type = type, .fallback = fallback, .rule = &rules::kWarnsIfEnabled};
  };
  const auto warned_section = [](std::string_view key, std::string_view note) {
    return KeySpec{
        .key = key, .type = Type::section, .note = note, .rule = &rules::kWarnsIfEnabled};
  };
  return {
      {.key = "checkpoint", .type = Type::section},
      {.key = "checkpoint.tag_validation",
       .type = Type::choice,
       .fallback = "\"warn\"",
       .state = State::no_effect,
       .note = "tags are step numbers, the same on every rank",
       .choices = "ignore|warn|fail"},
      fixed("checkpoint.load_universal", Type::boolean, "false", logical),
      {.key = "checkpoint.use_node_local_storage", .fallback = "false", .rule = &kLocalStorage},
      {.key = "checkpoint.parallel_write", .type = Type::section},
      fixed("checkpoint.parallel_write.pipeline_stage", Type::boolean, "false", logical),
      fixed("checkpoint.checkpoint_serialization", Type::boolean, "true", logical),
      {.key = "checkpoint.writer",
       .type = Type::section,
       .state = State::no_effect,
       .note = writer,
       .nullable = true},
      fixed("checkpoint.writer.type", Type::string, "", writer),
      fixed("checkpoint.writer.decoupled", Type::boolean, "false", writer),
      fixed("checkpoint.writer.io_buffer_size", Type::integer, "67108864", writer),
      fixed("checkpoint.writer.io_buffer_double", Type::boolean, "true", writer),
      fixed("checkpoint.writer.show_statistics", Type::boolean, "false", writer),
      fixed("checkpoint.writer.data_parallel", Type::string, "", writer),
      fixed("checkpoint.writer.io_multiplier", Type::integer, "1", writer),
      refused(
          "nebula", rules::kRefusedIfOn,
          "Nebula was removed from DeepSpeed (0.19.8): remove the section and use --save_interval"),
      {.key = "datastates_ckpt",
       .type = Type::any,
       .note = "DataStates is not part of dstrain: remove the section and use --save_interval",
       .rule = &kDataStates},

      fixed("compile", Type::section, "", compile),
      fixed("compile.enabled", Type::boolean, "false", compile),
      fixed("compile.deepcompile", Type::boolean, "false", compile),
      fixed("compile.autoep_non_moe", Type::boolean, "false", compile),
      fixed("compile.backend", Type::string, "", compile),
      fixed("compile.disable", Type::boolean, "false", compile),
      fixed("compile.passes", Type::strings, "", compile),
      fixed("compile.kwargs", Type::opaque, "", compile),
      fixed("compile.free_activation", Type::boolean, "false", compile),
      fixed("compile.free_activation_threshold", Type::integer, "10485760", compile),
      fixed("compile.offload_activation", Type::boolean, "false", compile),
      fixed("compile.offload_activation_pin_memory", Type::boolean, "true", compile),
      fixed("compile.offload_opt_states", Type::boolean, "false", compile),
      fixed("compile.offload_parameters", Type::boolean, "false", compile),
      fixed("compile.double_buffer", Type::boolean, "true", compile),
      fixed("compile.symmetric_memory", Type::boolean, "false", compile),
      fixed("compile.debug_log", Type::boolean, "false", compile),
      fixed("compile.sync_before_reduce", Type::boolean, "false", compile),
      fixed("compile.sync_after_reduce", Type::boolean, "false", compile),
      fixed("compile.sync_before_allgather", Type::boolean, "false", compile),
      fixed("compile.sync_after_allgather", Type::boolean, "false", compile),
      fixed("compile.keep_int_input_tensors", Type::boolean, "true", compile),
      fixed("compile.keep_all_input_tensors", Type::boolean, "false", compile),

      off_section("curriculum_learning",
                  "was removed from DeepSpeed (0.19.8); here all samples have as many tokens: "
                  "remove it"),
      against("curriculum_learning.enabled", Type::boolean, "false"),
      against("curriculum_learning.curriculum_type", Type::string, "\"seqlen\""),
      against("curriculum_learning.min_difficulty", Type::integer, ""),
      against("curriculum_learning.max_difficulty", Type::integer, ""),
      against("curriculum_learning.schedule_type", Type::string, ""),
      against("curriculum_learning.schedule_config", Type::opaque, ""),
      data("data_efficiency", Type::section, ""),
      data("data_efficiency.enabled", Type::boolean, "false"),
      data("data_efficiency.seed", Type::integer, "1234"),
      data("data_efficiency.data_sampling", Type::section, ""),
      data("data_efficiency.data_sampling.enabled", Type::boolean, "false"),
      data("data_efficiency.data_sampling.num_epochs", Type::integer, "1000"),
      data("data_efficiency.data_sampling.num_workers", Type::integer, "0"),
      data("data_efficiency.data_sampling.pin_memory", Type::boolean, "false"),
      data("data_efficiency.data_sampling.curriculum_learning", Type::opaque, ""),
      data("data_efficiency.data_sampling.dynamic_batching", Type::opaque, ""),
      data("data_efficiency.data_routing", Type::section, ""),
      data("data_efficiency.data_routing.enabled", Type::boolean, "false"),
      data("data_efficiency.data_routing.random_ltd", Type::opaque, ""),
      off_section("progressive_layer_drop",
                  "was removed from DeepSpeed (0.19.8); here every layer runs: remove it"),
      against("progressive_layer_drop.enabled", Type::boolean, "false"),
      against("progressive_layer_drop.theta", Type::real, "0.5"),
      against("progressive_layer_drop.gamma", Type::real, "0.001"),

      off_section(
          "elasticity",
          "was removed from DeepSpeed (0.19.8); here the batch sizes are given, and --elastic "
          "goes on without lost hosts: remove it"),
      against("elasticity.enabled", Type::boolean, "false"),
      against("elasticity.max_train_batch_size", Type::integer, ""),
      against("elasticity.micro_batch_sizes", Type::integers, ""),
      against("elasticity.min_gpus", Type::integer, "1"),
      against("elasticity.max_gpus", Type::integer, "10000"),
      against("elasticity.num_gpus_per_node", Type::integer, "1"),
      against("elasticity.model_parallel_size", Type::integer, "1"),
      against("elasticity.min_time", Type::integer, "0"),
      against("elasticity.version", Type::real, "0.2"),
      against("elasticity.prefer_larger_batch", Type::boolean, "true"),
      against("elasticity.ignore_non_elastic_batch_info", Type::boolean, "false"),

      warned_section("autotuning",
                     "is not part of dstrain: the run trains with the values of the file; dstrain "
                     "plan shows the memory of any setting"),
      warned("autotuning.enabled", Type::boolean, "false"),
      warned("autotuning.fast", Type::boolean, "true"),
      warned("autotuning.results_dir", Type::string, ""),
      warned("autotuning.exps_dir", Type::string, ""),
      warned("autotuning.overwrite", Type::boolean, "true"),
      warned("autotuning.start_profile_step", Type::integer, "3"),
      warned("autotuning.end_profile_step", Type::integer, "5"),
      warned("autotuning.metric", Type::string, "\"throughput\""),
      warned("autotuning.tuner_type", Type::string, "\"gridsearch\""),
      warned("autotuning.tuner_early_stopping", Type::integer, "5"),
      warned("autotuning.tuner_num_trials", Type::integer, "50"),
      warned("autotuning.arg_mappings", Type::opaque, ""),
      {.key = "autotuning.model_info",
       .type = Type::opaque,
       .rule = &rules::kWarnsIfEnabled,
       .nullable = true},
      warned("autotuning.mp_size", Type::integer, "1"),
      warned("autotuning.max_train_batch_size", Type::integer, ""),
      warned("autotuning.min_train_batch_size", Type::integer, "1"),
      warned("autotuning.max_train_micro_batch_size_per_gpu", Type::integer, "1024"),
      warned("autotuning.min_train_micro_batch_size_per_gpu", Type::integer, "1"),
      warned("autotuning.num_tuning_micro_batch_sizes", Type::integer, "3"),

      warned_section("hybrid_engine",
                     "generates text between steps, which a run here does not: dstrain generate "
                     "does it from the run's weights"),
      warned("hybrid_engine.enabled", Type::boolean, "false"),
      warned("hybrid_engine.max_out_tokens", Type::integer, "512"),
      warned("hybrid_engine.inference_tp_size", Type::integer, "1"),
      warned("hybrid_engine.release_inference_cache", Type::boolean, "false"),
      warned("hybrid_engine.pin_parameters", Type::boolean, "true"),
      warned("hybrid_engine.tp_gather_partition_size", Type::integer, "8"),
      warned("hybrid_engine.enable_cuda_graph", Type::boolean, "false"),
      warned_section(
          "eigenvalue",
          "was removed from DeepSpeed (0.19.8) with quantize_training, which alone reads "
          "it: the run goes on without it"),
      warned("eigenvalue.enabled", Type::boolean, "false"),
      warned("eigenvalue.verbose", Type::boolean, "false"),
      warned("eigenvalue.max_iter", Type::integer, "100"),
      warned("eigenvalue.tol", Type::real, "0.01"),
      warned("eigenvalue.stability", Type::real, "0.000001"),
      warned("eigenvalue.gas_boundary_resolution", Type::integer, "1"),
      warned("eigenvalue.layer_name", Type::string, ""),
      warned("eigenvalue.layer_num", Type::integer, "0"),
      {.key = "eigenvalue.model_name", .type = Type::string, .rule = &rules::kWarnsIfEnabled},
      refused("quantize_training", rules::kRefusedIfOn,
              "removed from DeepSpeed (0.19.8), and training with quantized weights is not part of "
              "dstrain: "
              "remove it"),
      refused("weight_quantization", rules::kRefusedUnlessOff,
              "quantization for inference is not part of dstrain: remove it"),
      refused("compression_training", rules::kRefusedUnlessOff,
              "removed from DeepSpeed (0.19.8), and compression is not part of dstrain: remove the "
              "section"),
      refused("sparse_attention", rules::kRefusedUnlessOff,
              "removed from DeepSpeed (0.19.8), and attention is dense and causal here: remove the "
              "section"),
  };
}

}  // namespace dstrain::keys
