#include "runtime/config/keys/table/numbers.h"

#include "runtime/config/text.h"

namespace dstrain {
namespace {

// Sections, at the top level or one below it, none of whose keys changes a number.
constexpr std::string_view kIdleSections =
    "tensorboard|wandb|csv_monitor|comet|comms_logger|flops_profiler|timers|autotuning|aio|"
    "activation_checkpointing|checkpoint|nebula|datastates_ckpt|compile|hybrid_engine|"
    "eigenvalue|weight_quantization|pipeline|tensor_parallel|expert_parallel|"
    "zero_optimization.offload_param|zero_optimization.offload_optimizer|"
    "zero_optimization.leaf_module";

constexpr std::string_view kIdleKeys =
    "steps_per_print|wall_clock_breakdown|memory_breakdown|dump_state|log_level|"
    "disable_allgather|allgather_size|dataloader_drop_last|zero_allow_untested_optimizer|"
    "zero_force_ds_cpu_optimizer|use_data_before_expert_parallelism|graph_harvesting|"
    "disable_python_gc|vocabulary_size|sequence_parallel_size|data_parallel_size|"
    "sparse_gradients|managed_gradient_accumulation|dstrain.sequence_parallel|dstrain.recompute|"
    "dstrain.timeout_s|dstrain.save_interval|dstrain.eval_interval|dstrain.trace";

// Keys of zero_optimization with which values are rounded, or weights are updated in another way.
constexpr std::string_view kZeroNumbers =
    "zero_quantized_weights|zero_quantized_nontrainable_weights|zero_quantized_gradients|"
    "zeropp_loco_param|zenflow";

std::string_view first_parts(std::string_view key, int count) {
  size_t end = 0;
  while (count-- > 0 && end != std::string_view::npos) end = key.find('.', end == 0 ? 0 : end + 1);
  return key.substr(0, end);
}

}  // namespace

bool changes_no_number(std::string_view key) {
  const std::string_view top = first_parts(key, 1), two = first_parts(key, 2);
  if (one_of(kIdleSections, top) || one_of(kIdleSections, two) || one_of(kIdleKeys, key))
    return true;
  // How state is divided among ranks. The section as a whole has keys of both kinds.
  if (top != "zero_optimization" || two == top) return false;
  return !one_of(kZeroNumbers, two.substr(top.size() + 1));
}

}  // namespace dstrain
