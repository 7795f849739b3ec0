#include "tests/config/verdict_cases.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

// Returns the section with these members, where it is on.
std::string on(const std::string& members) {
  return "\"expert_parallel\": {\"enabled\": true, " + members + "}";
}

std::string divided_key(const std::string& name) {
  return "expert_parallel." + name;
}

}  // namespace

TEST_CASE("expert parallel: the section is off where DeepSpeed's is") {
  check_all({
      {R"("expert_parallel": {"autoep_size": 4})", divided_key("autoep_size"),
       "no_effect: expert_parallel is off"},
      {R"("expert_parallel": {"enabled": false, "top_k": 3})", divided_key("top_k"),
       "no_effect: expert_parallel is off"},
      {on(R"("autoep_size": 1)"), divided_key("enabled"), "honoured"},
      {on(R"("autoep_size": 0)"), divided_key("autoep_size"),
       "error: expected an integer from 1 to 4096, found 0"},
  });
}

TEST_CASE("expert parallel: what the model says cannot be said otherwise") {
  check_all({
      {on(R"("preset_model": "mixtral")"), divided_key("preset_model"),
       "no_effect: which parameters are experts follows from the model"},
      {on(R"("expert_w1": "gate_proj")"), divided_key("expert_w1"),
       "no_effect: which parameters are experts follows from the model"},
      {on(R"("use_grouped_mm": false)"), divided_key("use_grouped_mm"),
       "no_effect: it names kernels, whose numbers are the same"},
      {on(R"("top_k": "auto")"), divided_key("top_k"), "no_effect: the model says it"},
      {on(R"("route_norm": null)"), divided_key("route_norm"), "no_effect: unset"},
      {on(R"("route_scale": 1.0)"), divided_key("route_scale"), "no_effect: the model says it"},
      {on(R"("top_k": 3)"), divided_key("top_k"),
       "error: the model says how its experts are chosen and weighed: use \"auto\", or the model's "
       "own keys in dstrain.model"},
      {on(R"("expert_tensor_parallel_size": 1)"), divided_key("expert_tensor_parallel_size"),
       "no_effect: each expert is one rank's"},
      {on(R"("expert_tensor_parallel_size": 2)"), divided_key("expert_tensor_parallel_size"),
       "error: DeepSpeed takes 1 alone: ranks do not share an expert, use 1"},
      {on(R"("load_balance_coeff": 0.001)"), divided_key("load_balance_coeff"),
       "error: DeepSpeed takes null alone: models have keys for the loss that keeps experts "
       "balanced"},
  });
}
