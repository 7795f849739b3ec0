#include <catch2/catch.hpp>

#include "runtime/config/judge.h"
#include "tests/config/verdict_cases.h"

using namespace dstrain;
using namespace dstrain::test;

TEST_CASE("verdicts: a key with a dot in its own name is unknown, with how to nest it") {
  const auto nest = [](const std::string& how) {
    return "unknown: unknown key (a dot in a name does not nest: write " + how + ")";
  };
  check_all({
      {R"("fp16.enabled": true)", "fp16.enabled", nest(R"("fp16": {"enabled": ...})")},
      {R"("amp.enabled": true)", "amp.enabled", nest(R"("amp": {"enabled": ...})")},
      {R"("dstrain.stepz": 5)", "dstrain.stepz", nest(R"("dstrain": {"stepz": ...})")},
      {R"("optimizer.params.lr": 4)", "optimizer.params.lr",
       nest(R"("optimizer": {"params": {"lr": ...}})")},
      {R"("optimizer": {"type": "AdamW", "params.lr": 0.5})", "optimizer.params.lr",
       nest(R"("params": {"lr": ...})")},
      {R"("optimizer": {"type": "AdamW", "params.lr": 0.5})", "optimizer",
       "honoured: see optimizer.params.lr"},
      {R"("no.such": 1)", "no.such", "unknown: unknown key"},
      {R"("fp16.": 1)", "fp16.", "unknown: unknown key"},
      {R"("_fp16.enabled": 1)", "_fp16.enabled", "no_effect: a comment"},
      {R"("tensorboard.enabled": true)", "tensorboard.enabled",
       R"(no_effect: unknown key (a dot in a name does not nest: write "tensorboard": )"
       R"({"enabled": ...}))"},
  });
  // transformers.js has a field of config.json for itself.
  const std::string model =
      R"("dstrain": {"model": {"type": "llama", "transformers.js_config": {"a": 1}}})";
  check_all({
      {model, "dstrain.model.transformers.js_config", "no_effect: transformers.js's"},
      {model, "dstrain.model.transformers.js_config.a",
       "no_effect: inside dstrain.model.transformers.js_config"},
      {R"("dstrain": {"transformers.js_config": 1})", "dstrain.transformers.js_config",
       "unknown: unknown key"},
  });
  CHECK(ask(trains_with(""), {"fp16.enabled=true"}).job().dtype == DType::f16);
  // The key that is meant keeps its own verdict.
  CHECK(ask(trains_with(R"("dstrain.model.n_head": 1, "dstrain": {"model": {"n_head": 5}})"))
            .error() ==
        "c.json:1:2: dstrain.model.n_head: unknown key (a dot in a name does not nest: write "
        "\"dstrain\": {\"model\": {\"n_head\": ...}})\n"
        "c.json:1:51: dstrain.model.n_head: n_embd 768 is not a multiple of n_head 5");
}
