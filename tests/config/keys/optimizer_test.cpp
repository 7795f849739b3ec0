#include <catch2/catch.hpp>

#include "tests/config/verdict_cases.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

std::string optimizer(const std::string& type, const std::string& params) {
  return R"("optimizer": {"type": ")" + type + R"(", "params": {)" + params + "}}";
}

}  // namespace

TEST_CASE("optimizer: arguments of a type that dstrain does not have are not judged") {
  check_all({
      {optimizer("RMSprop", R"("alpha": 0.9)"), "optimizer.params.alpha",
       "error: see optimizer.type"},
      {optimizer("Adafactor", R"("d": 1)"), "optimizer.params.d", "error: see optimizer.type"},
      {optimizer("AdamW", R"("no_such_key": 1)"), "optimizer.params.no_such_key",
       "unknown: unknown key"},
      {R"("optimizer": {"type": "AdamW", "params": null})", "optimizer.params", "no_effect: unset"},
  });
}

TEST_CASE("optimizer: numbers beyond the range of fp32 are errors") {
  const std::string most = "error: expected a number from 0 to 3.4028234663852886e+38, found 1e+39";
  const std::string params = "optimizer.params.";
  for (const char* name : {"lr", "weight_decay", "eps"}) {
    const std::string member = std::string("\"") + name + "\": ";
    check_all({{optimizer("AdamW", member + "1e39"), params + name, most},
               {optimizer("AdamW", member + "1e38"), params + name, "honoured"}});
  }
  check_all({
      {optimizer("SGD", R"("momentum": 1e39)"), params + "momentum", most},
      {optimizer("SGD", R"("dampening": 1e39)"), params + "dampening",
       "error: expected a number from -3.4028234663852886e+38 to 3.4028234663852886e+38, found "
       "1e+39"},
      {optimizer("SGD", R"("dampening": -1e39)"), params + "dampening",
       "error: expected a number from -3.4028234663852886e+38 to 3.4028234663852886e+38, found "
       "-1e+39"},
      {optimizer("SGD", R"("dampening": "x")"), params + "dampening",
       "error: expected a number, found \"x\""},
      {optimizer("SGD", R"("dampening": -1)"), params + "dampening", "honoured"},
      {optimizer("Lamb", R"("max_coeff": 1e39)"), params + "max_coeff", most},
      {optimizer("OneBitLamb", R"("factor_max": 1e39)"), params + "factor_max", most},
      {optimizer("Muon", R"("muon_lr": 1e39)"), params + "muon_lr", most},
      {optimizer("Muon", R"("adam_lr": 1e39)"), params + "adam_lr", most},
  });
  CHECK(ask(trains_with(""), {"optimizer.type=AdamW", "optimizer.params.lr=1e39"}).error() ==
        "--set: optimizer.params.lr: expected a number from 0 to 3.4028234663852886e+38, found "
        "1e+39");
}
