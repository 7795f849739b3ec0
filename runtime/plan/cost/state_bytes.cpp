#include "runtime/plan/cost/state_bytes.h"

#include <algorithm>

#include "runtime/config/family/family.h"
#include "runtime/optim/optimizer_rules.h"
#include "runtime/plan/residency.h"
#include "runtime/plan/unit_spaces.h"

namespace dstrain {
namespace {

double& bytes_in(SpaceBytes& bytes, OffloadTo to) {
  return to == OffloadTo::none ? bytes.device : to == OffloadTo::cpu ? bytes.host : bytes.disk;
}

// Returns the bytes of an element whose value has `value` bytes, and its optimizer state `slots` bytes. `axes`: along which
// ranks have the same parameters.
SpaceBytes bytes_of_element(const Job& job, double value, double slots, bool frozen,
                            Axes axes = kStateAxes) {
  const Place place = place_of(job, 0);
  const Residency held = residency_of(job, place);
  const OffloadConfig& offload = job.offload;
  SpaceBytes bytes;
  bytes_in(bytes, offload.parameters) += value / divisor(held.parameters, place, axes);
  if (frozen) return bytes;
  const double leaves = offload.optimizer == OffloadTo::none ? 0 : offload.ratio;
  const bool gradients_leave =
      update_space(offload) == Space::host && job.reduce == ReduceMode::micro_batch;
  const double gradients_left = gradients_leave ? leaves : 0;
  // With one micro-batch gradients follow the state to disk.
  const OffloadTo gradients_to = job.batch.accumulation > 1 ? OffloadTo::cpu : offload.optimizer;
  const auto gradient = static_cast<double>(size_of(job.grad_dtype));
  bytes.device += (1 - gradients_left) * gradient / divisor(held.gradients, place, axes);
  bytes_in(bytes, gradients_to) += gradients_left * gradient / divisor(held.gradients, place, axes);
  const bool master_is_value = job.master_dtype == job.dtype;
  const int64_t master = master_is_value ? 0 : size_of(job.master_dtype);
  // The host updates copies of masters that the device has.
  const bool copied = update_space(offload) == Space::host && master_is_value &&
                      offload.parameters == OffloadTo::none;
  const double state = slots + static_cast<double>(master);
  bytes.device += (1 - leaves) * state / divisor(held.optimizer, place, axes);
  const double left = state + (copied ? static_cast<double>(size_of(job.master_dtype)) : 0);
  bytes_in(bytes, offload.optimizer) += leaves * left / divisor(held.optimizer, place, axes);
  return bytes;
}

double bytes_of_value(const Job& job, BlockFormat blocks) {
  if (blocks == BlockFormat::none) return static_cast<double>(size_of(job.dtype));
  return static_cast<double>(group_bytes(blocks)) / kWeightGroup;
}

void add(SpaceBytes& sum, double elements, const SpaceBytes& each) {
  sum.device += elements * each.device;
  sum.host += elements * each.host;
  sum.disk += elements * each.disk;
}

}  // namespace

SpaceBytes state_bytes(const Job& job, const Parameter& parameter) {
  return bytes_of_element(job, bytes_of_value(job, parameter.blocks),
                          slot_bytes(job, parameter.form), parameter.frozen,
                          parameter.is_of_experts ? kExpertStateAxes : kStateAxes);
}

SpaceBytes least_state_bytes(const Job& job) {
  const ModelMeasures model = job.model.measures();
  const double slots = std::min(slot_bytes(job, UpdateForm::elements),
                                slot_bytes(job, optimizer_rule(job.optimizer.kind).other_form));
  const double value = bytes_of_value(job, BlockFormat::none),
               packed = bytes_of_value(job, model.blocks);
  // A rank with the largest part of the model has the mean or more. Where ranks divide experts, which the measures do not tell
  // apart, all may be experts.
  const double parts =
      static_cast<double>(job.pipeline.stages) * job.tensor_ranks * job.expert_ranks;
  SpaceBytes sum;
  add(sum, (model.parameters - model.frozen) / parts, bytes_of_element(job, value, slots, false));
  add(sum, (model.frozen - model.packed) / parts, bytes_of_element(job, value, 0, true));
  add(sum, model.packed / parts, bytes_of_element(job, packed, 0, true));
  return sum;
}

}  // namespace dstrain
