// Gemma, Gemma 2 and Gemma 3's text model as transformers has them: names of their files, norms, windows, limits and positions
// of either kind of layers, from today's config.json and from older ones.
#include <catch2/catch.hpp>
#include <cmath>

#include "runtime/config/read/config_json.h"
#include "tests/models/described_decoder.h"

using namespace dstrain;
using namespace dstrain::test;
using Catch::Contains;

namespace {

const std::string kHeads = R"("num_key_value_heads": 2, "head_dim": 6)";

std::vector<RotaryAttrs> rotaries_of(const std::string& members) {
  // Queries and keys of a layer are rotated alike.
  std::vector<RotaryAttrs> list;
  const auto all =
      attrs_of<RotaryAttrs>(decoder_of("gemma3_text", kHeads + members), OpKind::rotary);
  for (size_t i = 0; i < all.size(); i += 2) {
    CHECK(all[i] == all[i + 1]);
    list.push_back(all[i]);
  }
  return list;
}

int64_t parameters_of(const std::string& type,
                      std::initializer_list<std::pair<const char*, int64_t>> sizes) {
  ModelConfig model(*model_registry().find(type));
  for (const auto& [key, value] : sizes) model.set(key, value);
  return model.measures().parameters;
}

}  // namespace

TEST_CASE("gemmas: published sizes have their numbers of parameters") {
  CHECK(parameters_of("gemma", {}) == 8'537'680'896);   // 7B
  CHECK(parameters_of("gemma2", {}) == 2'614'341'888);  // 2B
  CHECK(parameters_of("gemma3_text", {{"hidden_size", 1152},
                                      {"intermediate_size", 6912},
                                      {"num_attention_heads", 4},
                                      {"num_key_value_heads", 1},
                                      {"vocab_size", 262144}}) == 999'885'952);  // 1B
}

TEST_CASE("gemmas: tensors have transformers' names and shapes") {
  const auto gemma = decoder_shapes(decoder_of("gemma", kHeads));
  CHECK(gemma.size() == 2 + 3 * 9);
  CHECK(gemma.at("model.layers.0.self_attn.k_proj.weight") == "(12, 24)");
  const auto gemma2 = decoder_shapes(decoder_of("gemma2", kHeads));
  CHECK(gemma2.size() == 2 + 3 * 11);
  for (const std::string norm : {"input_layernorm", "post_attention_layernorm",
                                 "pre_feedforward_layernorm", "post_feedforward_layernorm"})
    CHECK(gemma2.at("model.layers.2." + norm + ".weight") == "(24)");
  const auto gemma3 = decoder_shapes(decoder_of("gemma3_text", kHeads));
  CHECK(gemma3.size() == 2 + 3 * 13);
  CHECK(gemma3.at("model.layers.1.self_attn.k_norm.weight") == "(6)");
}

TEST_CASE("gemmas: weights of norms begin at 0, to which 1 is added, and embeddings are scaled") {
  for (const std::string type : {"gemma", "gemma2", "gemma3_text"}) {
    const ModelConfig model = decoder_of(type, kHeads);
    for (const RmsNormAttrs& norm : attrs_of<RmsNormAttrs>(model, OpKind::rms_norm))
      CHECK(norm.centred);
    for (const Parameter& p : decoder_program(model).parameters)
      if (p.name.find("norm") != std::string::npos) CHECK(p.init == Init::zeros);
    const auto scales = attrs_of<ScaleAttrs>(model, OpKind::scale);
    REQUIRE(scales.size() == 1);
    CHECK(scales[0].factor == std::sqrt(24.0f));
    Program rounded;
    Builder builder(rounded, {.dtype = DType::bf16});
    build_model(builder, model);
    CHECK(std::get<ScaleAttrs>(rounded.instructions[1].attrs).factor == 4.90625f);
  }
}

TEST_CASE("gemmas: the gate is gelu in its tanh form, and exact where Gemma 2 and 3 say so") {
  const auto gate = [](const std::string& type, const std::string& members) {
    return attrs_of<ActivationAttrs>(decoder_of(type, kHeads + members), OpKind::gated)
        .front()
        .activation;
  };
  for (const std::string type : {"gemma", "gemma2", "gemma3_text"})
    CHECK(gate(type, "") == Activation::gelu);
  CHECK(gate("gemma2", R"(, "hidden_activation": "gelu")") == Activation::gelu_erf);
  CHECK(gate("gemma3_text", R"(, "hidden_activation": "silu")") == Activation::silu);
  // Published files of Gemma 2 have the other key, too.
  CHECK(gate("gemma2", R"(, "hidden_act": "silu", "cache_implementation": "hybrid")") ==
        Activation::gelu);
  // The first files of Gemma call it gelu.
  CHECK(gate("gemma", R"(, "hidden_act": "gelu", "hidden_activation": null)") == Activation::gelu);
}

TEST_CASE("gemma2: scores and logits have their scale and limits, and every other layer a window") {
  const auto scores = [](const std::string& members) {
    return attrs_of<AttentionAttrs>(decoder_of("gemma2", kHeads + members), OpKind::attention);
  };
  const auto caps = [](const std::string& type, const std::string& members) {
    return attrs_of<SoftcapAttrs>(decoder_of(type, kHeads + members), OpKind::softcap);
  };
  const AttentionAttrs first = scores("").front();
  CHECK(first.softcap == 50);
  CHECK(first.scale == 1.0 / 16);
  CHECK(caps("gemma2", "") == std::vector{SoftcapAttrs{30}});
  CHECK(scores(R"(, "query_pre_attn_scalar": 144)").front().scale == Approx(1.0 / 12));
  CHECK(scores(R"(, "attn_logit_softcapping": null)").front().softcap == 0);
  CHECK(caps("gemma2", R"(, "final_logit_softcapping": null)").empty());
  CHECK(caps("gemma3_text", "").empty());
  CHECK(caps("gemma3_text", R"(, "final_logit_softcapping": 9)") == std::vector{SoftcapAttrs{9}});
  // transformers keeps the field and does not use it.
  CHECK_THAT(decoder_error("gemma3_text", kHeads + R"(, "attn_logit_softcapping": 50.0)"),
             Contains("a limit of scores: only null is available"));
  using Windows = std::vector<int64_t>;
  CHECK(windows_of(decoder_of("gemma2", kHeads + R"(, "sliding_window": 4)")) == Windows{4, 0, 4});
  const std::string types =
      R"(, "layer_types": ["full_attention", "sliding_attention", "full_attention"])";
  CHECK(windows_of(decoder_of("gemma2", kHeads + R"(, "sliding_window": 4)" + types)) ==
        Windows{0, 4, 0});
  CHECK_THAT(decoder_error("gemma2", kHeads + R"(, "use_bidirectional_attention": true)"),
             Contains("queries that see keys behind them"));
}

TEST_CASE("gemma3_text: layers with a window have plain positions of their own") {
  using Windows = std::vector<int64_t>;
  const std::string pattern = R"(, "sliding_window": 4, "sliding_window_pattern": 2)";
  CHECK(windows_of(decoder_of("gemma3_text", kHeads + pattern)) == Windows{4, 0, 4});
  CHECK(windows_of(decoder_of("gemma3_text", kHeads + R"(, "sliding_window": 4)")) ==
        Windows{4, 4, 4});
  auto usual = rotaries_of(pattern);
  CHECK(usual[0].theta == 10000);
  CHECK(usual[1].theta == 1000000);
  CHECK(usual[1].kind == RotaryKind::plain);
  const auto today = rotaries_of(pattern + R"(, "rope_parameters": {
      "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 500.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}})");
  CHECK(today[0].theta == 50);
  CHECK(today[0].kind == RotaryKind::plain);
  CHECK(today[1].theta == 500);
  CHECK(today[1].kind == RotaryKind::linear);
  CHECK(today[1].factor == 8);
  CHECK(today[2] == today[0]);
  const auto older = rotaries_of(pattern + R"(, "rope_theta": 500, "rope_local_base_freq": 50,
      "rope_scaling": {"rope_type": "linear", "factor": 8.0})");
  CHECK(older == today);
}

TEST_CASE("gemma3_text: positions that contradict each other, or that are not known, are errors") {
  const std::string sections = kHeads + R"(, "rope_parameters": {
      "full_attention": {"rope_type": "default", "rope_theta": 500.0},
      "sliding_attention": {"rope_type": "default", "rope_theta": 50.0}})";
  CHECK(decoder_error("gemma3_text", sections) == "no error");
  CHECK_THAT(decoder_error("gemma3_text", sections + R"(, "rope_theta": 600)"),
             Contains("with dstrain.model.rope_parameters.rope_theta, which is 500: keep one"));
  CHECK_THAT(decoder_error("gemma3_text", sections + R"(, "rope_local_base_freq": 60)"),
             Contains("is given together with dstrain.model.rope_local_base_freq, which is 60"));
  CHECK_THAT(decoder_error("gemma3_text", kHeads + R"(, "rope_parameters": {"sliding_attention":
                    {"rope_type": "linear", "factor": 2.0}})"),
             Contains("other positions than plain ones in layers with a window"));
  CHECK_THAT(decoder_error("gemma3_text", kHeads + R"(, "rope_parameters": {"full_attention":
                    {"rope_type": "linear"}})"),
             Contains("needs factor"));
}

TEST_CASE("gemma3_text: a config.json that is written has a section for either kind of layers") {
  const std::string text = config_json_of(
      decoder_of("gemma3_text", kHeads + R"(, "rope_theta": 500, "rope_local_base_freq": 50,
                 "rope_scaling": {"rope_type": "linear", "factor": 8.0})"),
      DType::f32);
  TempDir dir;
  dir.write("config.json", text);
  Ask a = ask(trains_with(""));
  a.request.model = dir.path();
  const ModelConfig again = a.job().model;
  CHECK(again.real("rope_local_base_freq") == 50);
  CHECK(again.real("rope_parameters.rope_theta") == 500);
  CHECK(again.real("rope_parameters.factor") == 8);
  CHECK_THAT(text, Contains("\"full_attention\"") && Contains("\"sliding_attention\"") &&
                       Contains("\"final_logit_softcapping\": null") &&
                       !Contains("rope_local_base_freq"));
}
