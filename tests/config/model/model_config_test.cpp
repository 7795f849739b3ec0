#include "runtime/config/model/model_config.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/support/models.h"

using namespace dstrain;

TEST_CASE("model: a configuration begins with the defaults of its family") {
  const ModelConfig model(*model_registry().find("gptlite"));
  CHECK(model == GptLite{});
  CHECK(model.layers() == 12);
  CHECK(model.width() == 768);
  CHECK(model.context() == 2048);
  CHECK(model.vocabulary() == 0);
  CHECK(model.real("dropout") == 0.1);
  CHECK(model.text("activation") == "relu");
  const ModelConfig dnn(*model_registry().find("benchmark"));
  CHECK(dnn.integer("in_size") == 0);  // it is required
  CHECK(dnn.context() == 1);
  CHECK(dnn.vocabulary() == 0);
}

TEST_CASE("model: values are set by name, and no other key exists") {
  ModelConfig model = GptLite{};
  model.set("n_layer", 3);
  model.set("dropout", 0);
  model.set("tied_head", true);
  CHECK(model.integer("n_layer") == 3);
  CHECK(model.real("dropout") == 0);
  CHECK(model.flag("tied_head"));
  CHECK(model != ModelConfig(GptLite{}));
  CHECK_THROWS_WITH(model.set("in_size", 3), "a GPT-lite has no key in_size");
  CHECK_THROWS_WITH(model.integer("depth"), "a GPT-lite has no key depth");
  CHECK_THROWS_WITH(model.set("n_layer", 0.5), "n_layer of a GPT-lite is of another type");
  CHECK_THROWS_WITH(model.flag("n_layer"), "n_layer of a GPT-lite is of another type");
  CHECK_THROWS_WITH(ModelConfig{}.layers(), "the job has no model");
}

TEST_CASE("model: the registry's first family is the default") {
  const ModelRegistry& models = model_registry();
  CHECK(models.types(", ") == "gptlite, benchmark");
  CHECK(models.find("gptlite") == models.families().front());
  CHECK(models.find("") == nullptr);
  CHECK(models.find("gpt") == nullptr);
}
