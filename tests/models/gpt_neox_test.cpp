// GPT-NeoX as transformers has it: names of its files, parts of heads that are rotated, blocks whose MLP is beside attention.
#include <catch2/catch.hpp>

#include "models/decoder/rotary_keys.h"
#include "tests/models/described_decoder.h"

using namespace dstrain;
using namespace dstrain::test;
using Catch::Contains;

namespace {

RotaryAttrs neox_rotary(const std::string& members) {
  return attrs_of<RotaryAttrs>(decoder_of("gpt_neox", members), OpKind::rotary).front();
}

// A head has 6 columns, of which 4 are rotated.
const std::string kShare = R"("rotary_pct": 0.67)";

}  // namespace

TEST_CASE("gpt_neox: published sizes have their numbers of parameters") {
  const auto parameters = [](std::initializer_list<std::pair<const char*, int64_t>> sizes) {
    ModelConfig model(*model_registry().find("gpt_neox"));
    for (const auto& [key, value] : sizes) model.set(key, value);
    return model.measures().parameters;
  };
  CHECK(parameters({}) == 20'554'567'680);  // GPT-NeoX-20B
  CHECK(parameters({{"num_hidden_layers", 6},
                    {"hidden_size", 512},
                    {"intermediate_size", 2048},
                    {"num_attention_heads", 8},
                    {"vocab_size", 50304}}) == 70'426'624);  // Pythia-70M
}

TEST_CASE(
    "gpt_neox: tensors have transformers' names, and files queries, keys and values by heads") {
  const ModelConfig model = decoder_of("gpt_neox", kShare);
  const auto shapes = decoder_shapes(model);
  CHECK(shapes.size() == 4 + 3 * 12);
  CHECK(shapes.at("gpt_neox.embed_in.weight") == "(11, 24)");
  CHECK(shapes.at("embed_out.weight") == "(11, 24)");
  CHECK(shapes.at("gpt_neox.layers.2.attention.query_key_value.weight") == "(72, 24)");
  CHECK(shapes.at("gpt_neox.layers.0.mlp.dense_h_to_4h.bias") == "(20)");
  const WeightMap map = weight_map_of(model);
  REQUIRE(map.size() == 6);
  CHECK(map[1].parameter == "gpt_neox.layers.0.attention.query_key_value.bias");
  REQUIRE(map[0].parts.size() == 12);
  std::vector<int64_t> first;
  for (const WeightPart& part : map[0].parts) {
    CHECK(part.tensor == map[0].parameter);
    CHECK(part.rows == 6);
    first.push_back(part.first);
  }
  CHECK(first == std::vector<int64_t>{0, 18, 36, 54, 6, 24, 42, 60, 12, 30, 48, 66});
}

TEST_CASE(
    "gpt_neox: a quarter of each head is rotated, or what rotary_pct says, in queries and keys") {
  const RotaryAttrs usual = models::rotary_of(ModelConfig(*model_registry().find("gpt_neox")), 96);
  CHECK(usual.rotated == 24);
  CHECK(usual.theta == 10000);
  const RotaryAttrs older = neox_rotary(kShare + R"(, "rotary_emb_base": 500)");
  CHECK(older.head_size == 6);
  CHECK(older.rotated == 4);
  CHECK(older.sections == 3);
  CHECK(older.theta == 500);
  CHECK(neox_rotary(R"("rope_parameters": {"rope_type": "default", "rope_theta": 500,
                       "partial_rotary_factor": 0.67})") == older);
  CHECK(neox_rotary(R"("rotary_pct": 1.0)").rotated == 0);
  CHECK_THAT(decoder_error("gpt_neox", R"("rotary_pct": 0.5)"),
             Contains("an even number of a head's columns is rotated"));
  CHECK_THAT(decoder_error("gpt_neox", kShare + R"(, "rope_parameters": {"rope_type": "default",
                       "partial_rotary_factor": 0.25})"),
             Contains("dstrain.model.rotary_pct: is given together with "
                      "dstrain.model.rope_parameters.partial_rotary_factor, which is 0.25"));
  CHECK_THAT(decoder_error("gpt_neox", kShare + R"(, "tie_word_embeddings": true)"),
             Contains("a head that is the token embedding: only false is available"));
}

TEST_CASE("gpt_neox: a block whose MLP reads its input is one sublayer, else there are two") {
  CHECK(decoder_program(decoder_of("gpt_neox", kShare)).sublayers.size() == 5);
  CHECK(decoder_program(decoder_of("gpt_neox", kShare + R"(, "use_parallel_residual": false)"))
            .sublayers.size() == 8);
}

TEST_CASE("gpt_neox: its activation is exact gelu, and biases of attention may be left out") {
  const auto shapes =
      decoder_shapes(decoder_of("gpt_neox", kShare + R"(, "attention_bias": false)"));
  CHECK(shapes.size() == 4 + 3 * 10);
  const auto kind = [](const std::string& members) {
    return attrs_of<ActivationAttrs>(decoder_of("gpt_neox", kShare + members), OpKind::activation)
        .front()
        .activation;
  };
  CHECK(kind("") == Activation::gelu_erf);
  CHECK(kind(R"(, "hidden_act": "gelu_fast", "attention_probs_dropout_prob": 0,
                  "hidden_dropout_prob": 0)") == Activation::gelu);
}
