#include "runtime/config/family/model_config.h"

#include <catch2/catch.hpp>

#include "models/sizes.h"
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
  CHECK(models.types(", ") ==
        "gptlite, benchmark, gpt2, llama, mistral, qwen2, qwen3, mixtral, qwen2_moe, "
        "qwen3_moe, olmoe, deepseek_v3, gemma, gemma2, gemma3_text, gpt_neox, resnet, exported");
  CHECK(models.find("gptlite") == models.families().front());
  CHECK(models.find("") == nullptr);
  CHECK(models.find("gpt") == nullptr);
}

TEST_CASE("model: a registry refuses inputs that no data are read for") {
  using enum InputRole;
  using models::size_key;
  const auto refusal = [](std::vector<ModelInput> inputs) {
    const ModelFamily family{.type = "f",
                             .title = "F",
                             .keys = {{size_key("dstrain.model.length", "8", "")},
                                      {size_key("dstrain.model.width", "8", "")},
                                      {size_key("dstrain.model.ids", "", "")},
                                      {{.key = "dstrain.model.on", .fallback = "false"}}},
                             .inputs = std::move(inputs),
                             .layers_key = "length",
                             .width_key = "width"};
    try {
      const ModelRegistry registry({&family});
    } catch (const InternalError& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  const ModelInput ids{"ids", token_ids, DType::i32, {"length"}, "ids"};
  const ModelInput notes{"notes", features, DType::f32, {"length", "width", "width"}};
  const ModelInput next{"next", labels, DType::i32, {"length"}, "ids"};
  const ModelInput label{"label", labels, DType::i32, {}, "ids"};
  const auto with = [](ModelInput input, auto change) {
    change(input);
    return input;
  };
  CHECK(refusal({ids, next}) == "none");
  CHECK(refusal({ids, notes, next}) == "none");
  CHECK(refusal({notes, label}) == "none");
  const ModelInput begins{"begins", documents, DType::i32, {"length"}};
  CHECK(refusal({ids, begins, next}) == "none");
  CHECK(refusal({notes, begins, label}) ==
        "the documents of the F have not the shape of its token ids");
  CHECK(refusal({ids, with(begins, [](ModelInput& i) { i.classes = "ids"; }), next}) ==
        "input begins of the F: documents have no classes");

  CHECK(refusal({ids, notes}) == "the F has no labels");
  CHECK(refusal({label}) == "the F has neither token ids nor features");
  CHECK(refusal({notes, next}) == "the F has more than one label for the features of a sample");
  CHECK(refusal({ids, label}) ==
        "the labels of the F are the tokens that follow: their shape and classes are those of the "
        "token ids");
  CHECK(refusal({with(ids, [](ModelInput& i) { i.shape = {}; }), label}) ==
        "the token ids of the F are no sequence");
  CHECK(refusal({ids, with(ids, [](ModelInput& i) { i.name = "more"; }), next}) ==
        "input ids of the F is not the only one of token ids");
  CHECK(refusal({ids, with(notes, [](ModelInput& i) { i.name = "ids"; }), next}) ==
        "input ids of the F has the name of another one, or none");
  CHECK(refusal({ids, with(notes, [](ModelInput& i) { i.dtype = DType::bf16; }), next}) ==
        "input notes of the F is bf16: features are f32");
  CHECK(refusal({ids, with(notes, [](ModelInput& i) { i.shape.resize(8, "width"); }), next}) ==
        "input notes of the F has 8 dimensions: a tensor has 8, and the first is the samples");
  CHECK(refusal({ids, with(notes, [](ModelInput& i) { i.shape = {"on"}; }), next}) ==
        "input notes of the F: dimension on is no integer key");
  CHECK(refusal({ids, with(notes, [](ModelInput& i) { i.classes = "ids"; }), next}) ==
        "input notes of the F: features have no classes");
  CHECK(refusal({with(ids, [](ModelInput& i) { i.classes = "many"; }), next}) ==
        "input ids of the F: its classes 'many' are no integer key");
}

TEST_CASE("model: a family reads arrays of any number, names and sizes, and nothing else") {
  const auto family = [](std::vector<ModelInput> inputs) {
    return ModelFamily{.type = "f",
                       .title = "F",
                       .keys = {{models::size_key("dstrain.model.length", "8", "")}},
                       .inputs = std::move(inputs),
                       .layers_key = "length",
                       .width_key = "length"};
  };
  const auto refusal = [&family](std::vector<ModelInput> inputs) {
    const ModelFamily f = family(std::move(inputs));
    try {
      check_inputs(f);
    } catch (const InternalError& e) {
      return std::string(e.what());
    }
    return std::string("none");
  };
  const ModelInput x{"x", InputRole::array, DType::f32, {}, {}, {3, 4}},
      y{"y", InputRole::array, DType::i32};
  CHECK(refusal({x, y}) == "none");
  const ModelFamily f = family({x, y}), tokens = family({{"ids", InputRole::token_ids}});
  CHECK(f.reads_arrays());
  CHECK(!f.reads_tokens());
  CHECK(!f.predicts_tokens());
  CHECK(!tokens.reads_arrays());
  CHECK(ModelConfig(f).elements_of(InputRole::array) == 12);
  CHECK(ModelConfig(f).context() == 1);
  const auto with = [](ModelInput input, auto change) {
    change(input);
    return input;
  };
  CHECK(refusal({x, {"notes", InputRole::features, DType::f32, {"length"}}}) ==
        "the F reads features beside arrays");
  CHECK(refusal({x, x}) == "input x of the F has the name of another one, or none");
  CHECK(refusal({with(y, [](ModelInput& i) { i.dtype = DType::bf16; })}) ==
        "input y of the F is bf16: arrays are f32 or i32");
  CHECK(refusal({with(y, [](ModelInput& i) { i.classes = "length"; })}) == "none");
  CHECK(refusal({with(x, [](ModelInput& i) { i.classes = "length"; })}) ==
        "input x of the F: arrays have no classes");
  CHECK(refusal({with(x, [](ModelInput& i) { i.shape = {"length"}; })}) ==
        "input x of the F has its dimensions both by keys and as numbers");
  CHECK(refusal({with(x, [](ModelInput& i) {
          i.sizes = {2, 0};
        })}) == "input x of the F has a dimension of 0");
  CHECK(refusal({with(x, [](ModelInput& i) { i.whole = {0}; })}) ==
        "input x of the F has a dimension of 0");
  CHECK(refusal({with(x, [](ModelInput& i) { i.whole.assign(8, 1); })}) ==
        "input x of the F as a whole has 8 dimensions");
  CHECK(refusal({with(x, [](ModelInput& i) { i.sizes.assign(8, 1); })}) ==
        "input x of the F has 8 dimensions: a tensor has 8, and the first is the samples");
}
