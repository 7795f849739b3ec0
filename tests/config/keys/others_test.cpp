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
       {"nebula", "quantize_training", "datastates_ckpt", "expert_parallel", "compression_training",
        "sparse_attention", "weight_quantization"}) {
    INFO(key);
    check_all(
        {{section(key, R"("enabled": false, "x": 1)"), key, "no_effect: " + key + " is off"},
         {section(key, R"("enabled": false, "x": 1)"), key + ".x", "no_effect: inside " + key},
         {section(key, ""), key, "no_effect: " + key + " is empty"}});
    CHECK(ask(trains_with(section(key, R"("enabled": false)"))).error() == "no error");
    const std::string on = key == "expert_parallel" ? "not_yet" : "refused";
    CHECK(state_of(key, R"("enabled": true)") == on);
    CHECK(state_of(key, R"("enabled": "maybe")") == on);
  }
}

TEST_CASE("sections without a switch are off where DeepSpeed's are") {
  for (const char* key : {"nebula", "quantize_training", "expert_parallel"})
    CHECK(state_of(key, R"("x": 1)") == "no_effect");
  for (const char* key :
       {"datastates_ckpt", "compression_training", "sparse_attention", "weight_quantization"})
    CHECK(state_of(key, R"("x": 1)") == "refused");
}
