// Section expert_parallel.
#include <fmt/core.h>

#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"

namespace dstrain::keys {
namespace {

// Returns a judgement if experts are not divided among ranks.
std::optional<Judgement> without_experts(const Facts& facts) {
  if (facts.on("expert_parallel.enabled")) return std::nullopt;
  return Judgement{State::no_effect, "expert_parallel is off"};
}

bool is_absent(const Node& value) {
  return value.is(Node::Kind::null) || value.is_auto();
}

// Keys whose note says why they change nothing.
constexpr Rule kFollowsModel{[](const Facts& facts, const KeySpec& spec, const Node&) -> Judgement {
                               if (const auto judgement = without_experts(facts)) return *judgement;
                               return {State::no_effect, std::string(spec.note)};
                             },
                             "no_effect"};

// Keys that DeepSpeed needs for a model that it does not know: here the model says it.
constexpr Rule kOfModel{
    [](const Facts& facts, const KeySpec& spec, const Node& value) -> Judgement {
      if (const auto judgement = without_experts(facts)) return *judgement;
      if (is_absent(value) || (!spec.fallback.empty() && json_text(value) == spec.fallback))
        return {State::no_effect, "the model says it"};
      return {State::error,
              fmt::format("the model says how its experts are chosen and weighed: use {}, or the "
                          "model's own keys in dstrain.model",
                          spec.fallback.empty() ? "null" : spec.fallback)};
    },
    "off, \"auto\", null or the default: no_effect; else error"};

constexpr Rule kOneRank{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      if (const auto judgement = without_experts(facts)) return *judgement;
      if (to_integer(value).value_or(1) == 1)
        return {State::no_effect, "each expert is one rank's"};
      return {State::error, "DeepSpeed takes 1 alone: ranks do not share an expert, use 1"};
    },
    "off, or 1: no_effect; else error"};

constexpr Rule kBalance{
    [](const Facts& facts, const KeySpec&, const Node& value) -> Judgement {
      if (const auto judgement = without_experts(facts)) return *judgement;
      if (is_absent(value)) return {State::no_effect, "unset"};
      return {State::error,
              "DeepSpeed takes null alone: models have keys for the loss that keeps experts "
              "balanced"};
    },
    "off, or null: no_effect; else error"};

}  // namespace

std::vector<KeySpec> expert_parallel() {
  constexpr std::string_view follows = "which parameters are experts follows from the model",
                             kernels = "it names kernels, whose numbers are the same";
  std::vector<KeySpec> keys{
      {.key = "expert_parallel", .type = Type::section},
      {.key = "expert_parallel.enabled",
       .fallback = "false",
       .note = "ranks divide the experts of each layer among themselves",
       .rule = &rules::kIfEnabled},
      {.key = "expert_parallel.autoep_size",
       .type = Type::integer,
       .fallback = "1",
       .note = "consecutive data-parallel ranks that divide the experts of each layer",
       .rule = &rules::kIfEnabled,
       .min = 1,
       .max = kMostRanksOfAxis},
      {.key = "expert_parallel.expert_tensor_parallel_size",
       .type = Type::integer,
       .fallback = "1",
       .rule = &kOneRank,
       .min = 1},
      {.key = "expert_parallel.load_balance_coeff",
       .type = Type::any,
       .rule = &kBalance,
       .nullable = true},
      {.key = "expert_parallel.validate_folding_routing",
       .fallback = "false",
       .note = "ranks compare their plans when a run starts",
       .rule = &kFollowsModel},
      {.key = "expert_parallel.use_grouped_mm",
       .fallback = "true",
       .note = kernels,
       .rule = &kFollowsModel},
      {.key = "expert_parallel.disable_triton_grouped_mm",
       .fallback = "false",
       .note = kernels,
       .rule = &kFollowsModel},
      {.key = "expert_parallel.combine_impl",
       .type = Type::string,
       .fallback = "\"auto\"",
       .note = kernels,
       .rule = &kFollowsModel},
  };
  for (const std::string_view key :
       {"expert_parallel.preset_model", "expert_parallel.moe_layer_pattern",
        "expert_parallel.expert_pattern", "expert_parallel.router_pattern",
        "expert_parallel.expert_w1", "expert_parallel.expert_w2", "expert_parallel.expert_w3",
        "expert_parallel.num_experts_attr", "expert_parallel.top_k_attr",
        "expert_parallel.has_shared_experts", "expert_parallel.shared_experts_pattern",
        "expert_parallel.shared_experts_gate_pattern", "expert_parallel.expert_activation"})
    keys.push_back(
        {.key = key, .type = Type::any, .note = follows, .rule = &kFollowsModel, .nullable = true});
  struct OfModel {
    std::string_view key, fallback;
  };
  for (const OfModel& of : {OfModel{"expert_parallel.route_norm", ""},
                            {"expert_parallel.route_scale", "1"},
                            {"expert_parallel.score_apply", "\"auto\""},
                            {"expert_parallel.score_func", "\"auto\""},
                            {"expert_parallel.top_k", "\"auto\""},
                            {"expert_parallel.routed_scaling_factor", "\"auto\""},
                            {"expert_parallel.num_expert_groups", ""},
                            {"expert_parallel.num_limited_groups", ""}})
    keys.push_back({.key = of.key,
                    .type = Type::any,
                    .fallback = of.fallback,
                    .rule = &kOfModel,
                    .nullable = true});
  return keys;
}

}  // namespace dstrain::keys
