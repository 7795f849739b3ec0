#include "runtime/config/keys/table/key_table.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <limits>

#include "runtime/config/keys/table/model_registry.h"
#include "runtime/config/keys/table/sections.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

std::string_view selected(const Facts& facts, std::string_view key) {
  if (key.substr(0, 10) == "optimizer.") return facts.optimizer;
  if (key.substr(0, 10) == "scheduler.") return facts.scheduler;
  return facts.model;
}

// Limits the numbers that a step computes with, which it does in fp32: larger ones would be infinite there.
void limit_to_f32(std::vector<KeySpec>& table) {
  constexpr double most = std::numeric_limits<float>::max();
  for (KeySpec& spec : table) {
    if (spec.type != Type::real && spec.type != Type::rate) continue;
    if (!spec.key.starts_with("optimizer.") && !spec.key.starts_with("scheduler.")) continue;
    spec.min = std::max(spec.min, -most);
    spec.max = std::min(spec.max, most);
  }
}

}  // namespace

std::optional<int64_t> stage_of_sharding(std::string_view strategy) {
  if (strategy == "NO_SHARD") return 0;
  if (strategy == "SHARD_GRAD_OP" || strategy == "_HYBRID_SHARD_ZERO2") return 2;
  if (strategy == "FULL_SHARD" || strategy == "HYBRID_SHARD") return 3;
  return std::nullopt;
}

const std::vector<KeySpec>& common_keys() {
  static const std::vector<KeySpec> table = [] {
    std::vector<KeySpec> all;
    for (auto section : {keys::training,
                         keys::optimizer,
                         keys::optimizer_arguments,
                         keys::scheduler,
                         keys::precision,
                         keys::zero,
                         keys::offload,
                         keys::activation_checkpointing,
                         keys::pipeline,
                         keys::tensor_parallel,
                         keys::expert_parallel,
                         keys::monitoring,
                         keys::others,
                         keys::ignored,
                         keys::dstrain,
                         keys::data,
                         keys::fine_tuning,
                         keys::peft,
                         keys::saving,
                         keys::loss})
      std::ranges::move(section(), std::back_inserter(all));
    limit_to_f32(all);
    return all;
  }();
  return table;
}

const KeySpec* find_key(const Facts& facts, std::string_view key, std::string* other) {
  for (const KeySpec& spec : facts.models->keys()) {
    if (spec.key != key) continue;
    if (spec.only.empty() || one_of(spec.only, selected(facts, key))) return &spec;
    if (other) *other += fmt::format("{}{}", other->empty() ? "" : "|", spec.only);
  }
  return nullptr;
}

const KeySpec& target_of(const Facts& facts, const KeySpec& spec) {
  if (spec.alias.empty()) return spec;
  const KeySpec* target = find_key(facts, spec.alias);
  check(target, "the alias {} has no target {}", spec.key, spec.alias);
  return *target;
}

bool is_comment(std::string_view name) {
  return name.starts_with('_') || name.starts_with("//") || name.starts_with('#') ||
         one_of("$schema|$comment|comment|comments|description", name);
}

}  // namespace dstrain
