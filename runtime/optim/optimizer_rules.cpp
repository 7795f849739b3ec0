#include "runtime/optim/optimizer_rules.h"

#include <algorithm>

#include "runtime/optim/optimizers/adagrad.h"
#include "runtime/optim/optimizers/adam.h"
#include "runtime/optim/optimizers/eight_bit.h"
#include "runtime/optim/optimizers/lamb.h"
#include "runtime/optim/optimizers/lion.h"
#include "runtime/optim/optimizers/muon.h"
#include "runtime/optim/optimizers/one_bit.h"
#include "runtime/optim/optimizers/sgd.h"

namespace dstrain {
namespace {

constexpr std::array kRules{
    optimizers::adam,         optimizers::sgd,           optimizers::adagrad,
    optimizers::lion,         optimizers::lamb,          optimizers::muon,
    optimizers::one_bit_adam, optimizers::zero_one_adam, optimizers::one_bit_lamb,
    optimizers::adam_8bit,    optimizers::lion_8bit};

constexpr bool ordered_by_kind() {
  for (size_t i = 0; i < kRules.size(); ++i)
    if (kRules[i].kind != static_cast<OptimizerKind>(i)) return false;
  return true;
}
static_assert(ordered_by_kind() && kRules.size() == kOptimizerKinds, "a kind has no rule");

}  // namespace

const OptimizerRule& optimizer_rule(OptimizerKind kind) {
  return kRules[static_cast<size_t>(kind)];
}

bool freezes(const OptimizerConfig& config) {
  return optimizer_rule(config.kind).signs != nullptr;
}

std::span<const SlotRule> own_slots(const OptimizerConfig& config) {
  const OptimizerRule& rule = optimizer_rule(config.kind);
  if (rule.has_state && !rule.has_state(config)) return {};
  return rule.slots;
}

std::vector<SlotRule> state_slots(const OptimizerConfig& config) {
  const std::span<const SlotRule> own = own_slots(config);
  std::vector<SlotRule> slots(own.begin(), own.end());
  if (config.ema_decay > 0) slots.push_back(kWeightAverage);
  return slots;
}

bool can_own_masters(const OptimizerConfig& config) {
  return config.kind == OptimizerKind::adam && config.ema_decay == 0;
}

int64_t state_block(const OptimizerConfig& config) {
  int64_t block = 1;
  for (const SlotRule& slot : state_slots(config)) block = std::max(block, slot.block);
  return block;
}

double slot_bytes(const Job& job, UpdateForm form) {
  double bytes = 0;
  for (const SlotRule& slot : state_slots(job.optimizer))
    if (slot.forms.has(form))
      bytes += static_cast<double>(size_of(slot.dtype_in(job))) / static_cast<double>(slot.block);
  return bytes;
}

std::vector<std::string_view> all_state_slots() {
  std::vector<std::string_view> names;
  for (const OptimizerRule& rule : kRules)
    for (const SlotRule& slot : rule.slots)
      if (std::ranges::find(names, slot.name) == names.end()) names.push_back(slot.name);
  names.push_back(kWeightAverage.name);
  return names;
}

}  // namespace dstrain
