#include "runtime/config/solve/solve_precision.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

// The smallest loss scale: fp32 gradients are multiplied by its inverse, which must be a number.
constexpr double kLeastScale = 0x1p-126;

}  // namespace

DType dtype_named(std::string_view name) {
  if (one_of("fp16|float16|half", name)) return DType::f16;
  return one_of("bf16|bfloat16", name) ? DType::bf16 : DType::f32;
}

std::string_view deepspeed_name(DType dtype) {
  return dtype == DType::f16 ? "fp16" : dtype == DType::bf16 ? "bf16" : "fp32";
}

void solve_precision(Job& job, Values& v, Diagnostics& diagnostics, const Facts& facts) {
  v.flag("fp16.enabled");
  v.flag("bf16.enabled");
  if (facts.fp16 && facts.bf16)
    diagnostics.error("bf16.enabled",
                      "fp16 and bf16 cannot both be enabled: set one of them to false");
  job.dtype = facts.bf16 ? DType::bf16 : facts.fp16 ? DType::f16 : DType::f32;
  const std::string run_type(deepspeed_name(job.dtype));
  job.wire_dtype = dtype_named(v.text("communication_data_type", run_type, "the run's type"));
  if (const std::string hook = v.text("dstrain.comm_hook.type"); hook.ends_with("_compress")) {
    const DType asked = dtype_named(hook.substr(0, hook.find('_')));
    if (v.given("communication_data_type") && job.wire_dtype != asked)
      diagnostics.error("dstrain.comm_hook.type",
                        fmt::format("{} sends gradients as {}, communication_data_type says {}: "
                                    "keep one of the two",
                                    hook, deepspeed_name(asked), deepspeed_name(job.wire_dtype)));
    job.wire_dtype = asked;
  }
  if (facts.bf16 && v.flag("bf16.bf16_master_weights_and_grads")) job.master_dtype = DType::bf16;
  if (facts.bf16 && v.flag("bf16.bf16_optimizer_states")) job.state_dtype = DType::bf16;
  if (facts.fp16 && v.flag("fp16.fp16_master_weights_and_grads")) job.master_dtype = DType::f16;
  constexpr std::string_view accumulation = "data_types.grad_accum_dtype";
  job.grad_dtype =
      dtype_named(is_16bit(job.master_dtype) ? v.text(accumulation, run_type, "masters")
                                             : v.text(accumulation));
  if (const Member* m = v.given("data_types.param_dtype");
      m && dtype_named(lower_case(m->value.text)) != job.dtype)
    diagnostics.error("data_types.param_dtype",
                      fmt::format("{} does not agree with the fp16 and bf16 sections, which say {}",
                                  m->value.text, run_type),
                      {"fp16.enabled", "bf16.enabled"});
  if (facts.bf16) job.skip_on_overflow = v.flag("bf16.check_grad_overflow");
  if (!facts.fp16) return;
  job.skip_on_overflow = true;
  LossScaleConfig& scale = job.loss_scale;
  const double fixed = v.real("fp16.loss_scale");
  scale.dynamic = fixed == 0;
  scale.initial = fixed;
  if (fixed > 0 && fixed < kLeastScale)
    diagnostics.error(
        "fp16.loss_scale",
        fmt::format("expected 0, which makes it dynamic, or a number from 1.2e-38, as "
                    "fp32 gradients are divided by it; found {}",
                    json_text(fixed)));
  if (!scale.dynamic) return;
  scale.initial = std::ldexp(1.0, static_cast<int>(v.integer("fp16.initial_scale_power")));
  scale.window = v.integer("fp16.loss_scale_window");
  scale.hysteresis = static_cast<int>(v.integer("fp16.hysteresis"));
  scale.consecutive_hysteresis = v.flag("fp16.consecutive_hysteresis");
  scale.minimum = std::max(static_cast<double>(v.integer("fp16.min_loss_scale")), kLeastScale);
  if (scale.minimum > scale.initial)
    diagnostics.error("fp16.min_loss_scale",
                      fmt::format("{} is above the first scale, 2 to the initial_scale_power ({})",
                                  json_text(scale.minimum), json_text(scale.initial)),
                      {"fp16.initial_scale_power", "fp16.loss_scale"});
}

}  // namespace dstrain
