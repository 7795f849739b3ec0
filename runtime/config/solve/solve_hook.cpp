#include "runtime/config/solve/solve_hook.h"

#include <fmt/core.h>

namespace dstrain {
namespace {

constexpr std::string_view kType = "dstrain.comm_hook.type";

// Groups of ranks that update weights of their own, and what does not go with them.
void solve_local_sgd(Job& job, Values& v, Diagnostics& diagnostics) {
  constexpr std::string_view offload = "zero_optimization.offload_optimizer.device";
  HookConfig& hook = job.hook;
  hook.kind = HookKind::post_local_sgd;
  hook.start = v.integer("dstrain.comm_hook.start_localSGD_iter");
  hook.period = v.integer("dstrain.comm_hook.period");
  const bool hosts = v.flag("dstrain.comm_hook.post_local_gradient_allreduce");
  job.shards = {hosts ? 0 : 1, hosts, false};
  if (job.pipeline.stages > 1)
    diagnostics.error("pipeline.stages", "post_localSGD runs without a pipeline: use 1, or noop");
  if (is_16bit(job.master_dtype))
    diagnostics.error(job.dtype == DType::bf16 ? "bf16.bf16_master_weights_and_grads"
                                               : "fp16.fp16_master_weights_and_grads",
                      "post_localSGD averages fp32 masters: use false, or noop");
  if (v.given(offload) && v.text(offload) != "none")
    diagnostics.error(
        offload,
        "post_localSGD averages weights on the device: remove offload_optimizer, or use noop");
}

}  // namespace

void solve_hook(Job& job, Values& v, Diagnostics& diagnostics) {
  const std::string name = v.text(kType);
  if (diagnostics.stopped(kType)) return;
  if (name == "post_localSGD") return solve_local_sgd(job, v, diagnostics);
  if (!name.ends_with("powerSGD")) return;
  const auto key = [](std::string_view member) {
    return fmt::format("dstrain.comm_hook.{}", member);
  };
  HookConfig& hook = job.hook;
  hook.kind = name == "powerSGD" ? HookKind::power_sgd : HookKind::batched_power_sgd;
  hook.rank = v.integer(key("matrix_approximation_rank"));
  hook.start = v.integer(key("start_powerSGD_iter"));
  hook.error_feedback = v.flag(key("use_error_feedback"));
  hook.warm_start = v.flag(key("warm_start"));
  hook.orthogonal_eps = v.real(key("orthogonalization_epsilon"));
  hook.seed = v.integer(key("random_seed"));
  if (hook.kind == HookKind::power_sgd) hook.min_compression = v.real(key("min_compression_rate"));
  if (job.reduce == ReduceMode::micro_batch)
    diagnostics.error("dstrain.reduce",
                      fmt::format("{} sends the gradient of a whole step: use \"boundary\"", name));
  if (job.grad_dtype != DType::f32)
    diagnostics.error("data_types.grad_accum_dtype",
                      fmt::format("{} makes factors of fp32 gradients: use \"fp32\"", name));
}

}  // namespace dstrain
