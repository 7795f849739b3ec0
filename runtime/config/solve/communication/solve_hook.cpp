#include "runtime/config/solve/communication/solve_hook.h"

#include <fmt/core.h>

namespace dstrain {
namespace {

constexpr std::string_view kType = "dstrain.comm_hook.type";

// Groups of ranks that update weights of their own.
void solve_local_sgd(Job& job, Values& v) {
  HookConfig& hook = job.hook;
  hook.kind = HookKind::post_local_sgd;
  hook.start = v.integer("dstrain.comm_hook.start_localSGD_iter");
  hook.period = v.integer("dstrain.comm_hook.period");
  const bool hosts = v.flag("dstrain.comm_hook.post_local_gradient_allreduce");
  job.shards = {hosts ? 0 : 1, hosts, false};
}

}  // namespace

void solve_hook(Job& job, Values& v, const Diagnostics& diagnostics) {
  const std::string name = v.text(kType);
  if (diagnostics.stopped(kType)) return;
  if (name == "post_localSGD") return solve_local_sgd(job, v);
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
}

}  // namespace dstrain
