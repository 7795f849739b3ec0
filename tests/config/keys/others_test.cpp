#include <catch2/catch.hpp>

#include "tests/config/verdict_cases.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

std::string section(const std::string& key, const std::string& members) {
  return "\"" + key + "\": {" + members + "}";
}

std::string state_of(const std::string& key, const std::string& members) {
  const std::string text = verdict(ask(trains_with(section(key, members))).check(), key);
  return text.substr(0, text.find(':'));
}

}  // namespace

TEST_CASE("sections that dstrain does not have are no_effect where they are off or empty") {
  for (const std::string key :
       {"nebula", "quantize_training", "datastates_ckpt", "compression_training",
        "sparse_attention", "weight_quantization"}) {
    INFO(key);
    check_all(
        {{section(key, R"("enabled": false, "x": 1)"), key, "no_effect: " + key + " is off"},
         {section(key, R"("enabled": false, "x": 1)"), key + ".x", "no_effect: inside " + key},
         {section(key, ""), key, "no_effect: " + key + " is empty"}});
    CHECK(ask(trains_with(section(key, R"("enabled": false)"))).error() == "no error");
    CHECK(state_of(key, R"("enabled": true)") == "refused");
    CHECK(state_of(key, R"("enabled": "maybe")") == "refused");
  }
}

TEST_CASE("sections without a switch are off where DeepSpeed's are") {
  for (const char* key : {"nebula", "quantize_training"})
    CHECK(state_of(key, R"("x": 1)") == "no_effect");
  for (const char* key :
       {"datastates_ckpt", "compression_training", "sparse_attention", "weight_quantization"})
    CHECK(state_of(key, R"("x": 1)") == "refused");
}

TEST_CASE("sections: DataStates is off with false in place of the section") {
  check_all({{R"("datastates_ckpt": false)", "datastates_ckpt", "no_effect: off"}});
  const LoadedConfig on = ask(trains_with(R"("datastates_ckpt": true)")).check();
  CHECK(verdict(on, "datastates_ckpt").starts_with("refused: DataStates"));
}

TEST_CASE("keys: null is unset where DeepSpeed takes it") {
  check_all({
      {R"("bf16": null)", "bf16", "no_effect: unset"},
      {R"("aio": null)", "aio", "no_effect: unset"},
      {R"("steps_per_print": null)", "steps_per_print", "no_effect: unset"},
      {R"("seq_parallel_communication_data_type": null)", "seq_parallel_communication_data_type",
       "no_effect: unset"},
      {R"("data_types": {"grad_accum_dtype": null})", "data_types.grad_accum_dtype",
       "no_effect: unset"},
      {zero(R"("leaf_module": null)"), "zero_optimization.leaf_module", "no_effect: unset"},
      {R"("data_efficiency": {"data_sampling": {"pin_memory": true}})",
       "data_efficiency.data_sampling.pin_memory", "no_effect: data_efficiency is off"},
      {R"("compile": {"enabled": true})", "compile.enabled",
       "no_effect: nothing is compiled while a run goes on"},
  });
  const std::string all = R"("bf16": null, "aio": null, "steps_per_print": null,
    "data_types": {"grad_accum_dtype": null}, "optimizer": {"type": "AdamW", "params": null})";
  CHECK(ask(trains_with(all)).job() == ask(trains_with("")).job());
}
