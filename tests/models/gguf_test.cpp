// What llama.cpp knows of the models: architectures, fields, names of tensors, and what it does not compute.
#include <fmt/format.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <optional>
#include <regex>

#include "models/gguf_registry.h"
#include "tests/models/described_decoder.h"

using namespace dstrain;
using namespace dstrain::test;
using Catch::Contains;
using models::GgufChange;
using models::GgufModel;

namespace {

const std::string kFewHeads = R"("num_key_value_heads": 2, "head_dim": 6)";

GgufModel known(const ModelConfig& model) {
  const auto description = gguf_of(model);
  REQUIRE(description);
  REQUIRE(std::holds_alternative<GgufModel>(*description));
  return std::get<GgufModel>(*description);
}

std::string refused(const ModelConfig& model) {
  const auto description = gguf_of(model);
  REQUIRE(description);
  REQUIRE(std::holds_alternative<KeyProblem>(*description));
  const auto& problem = std::get<KeyProblem>(*description);
  return fmt::format("{}: {}", problem.keys.front(), problem.message);
}

std::optional<GgufValue> field(const GgufModel& model, const std::string& name) {
  const std::string key = std::string(model.architecture) + "." + name;
  const auto found = std::ranges::find(model.fields, key, &GgufField::key);
  return found == model.fields.end() ? std::nullopt : std::optional(found->value);
}
int64_t size(const GgufModel& model, const std::string& name) {
  const auto value = field(model, name);
  INFO(name);
  REQUIRE(value);
  return std::get<uint32_t>(*value);
}
float real(const GgufModel& model, const std::string& name) {
  const auto value = field(model, name);
  INFO(name);
  REQUIRE(value);
  return std::get<float>(*value);
}

// Returns the names and changes of all parameters of a layer and of none, as a file has them.
std::map<std::string, GgufChange> names_of(const ModelConfig& model) {
  std::map<std::string, GgufChange> names;
  const GgufModel gguf = known(model);
  for (const Parameter& p : decoder_program(model).parameters) {
    static const std::regex shape("(.*?)(?:\\.([0-9]+)\\.(.*))?\\.(weight|bias)");
    std::smatch match;
    REQUIRE(std::regex_match(p.name, match, shape));
    const std::string place =
        match[2].matched ? match[1].str() + ".*." + match[3].str() : match[1].str();
    const auto found = std::ranges::find(gguf.names, place, &models::GgufName::own);
    INFO(p.name);
    REQUIRE(found != gguf.names.end());
    std::string written(found->written);
    if (const size_t star = written.find('*'); star != written.npos)
      written.replace(star, 1, match[2].str());
    names.emplace(written + "." + match[4].str(), found->change);
  }
  return names;
}

}  // namespace

TEST_CASE("gguf: a Llama has rotated rows in turns, and the sizes of its config.json") {
  const ModelConfig model = decoder_of("llama", kFewHeads + R"(, "rope_theta": 5000.0)");
  const GgufModel gguf = known(model);
  CHECK(gguf.architecture == "llama");
  CHECK(size(gguf, "vocab_size") == 11);
  CHECK(size(gguf, "context_length") == 6);
  CHECK(size(gguf, "embedding_length") == 24);
  CHECK(size(gguf, "block_count") == 3);
  CHECK(size(gguf, "feed_forward_length") == 20);
  CHECK(size(gguf, "attention.head_count") == 4);
  CHECK(size(gguf, "attention.head_count_kv") == 2);
  CHECK(size(gguf, "attention.key_length") == 6);
  CHECK(size(gguf, "rope.dimension_count") == 6);
  CHECK(real(gguf, "rope.freq_base") == 5000);
  CHECK(real(gguf, "attention.layer_norm_rms_epsilon") == 1e-6F);
  CHECK_FALSE(field(gguf, "rope.scaling.type"));
  CHECK(gguf.head_size == 6);
  const auto names = names_of(model);
  CHECK(names.size() == 3 + 3 * 9);
  CHECK(names.at("token_embd.weight") == GgufChange::none);
  CHECK(names.at("output_norm.weight") == GgufChange::none);
  CHECK(names.at("output.weight") == GgufChange::none);
  CHECK(names.at("blk.1.attn_q.weight") == GgufChange::heads_interleaved);
  CHECK(names.at("blk.2.attn_k.weight") == GgufChange::heads_interleaved);
  for (const std::string name :
       {"attn_norm", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up", "ffn_down"})
    CHECK(names.at("blk.0." + name + ".weight") == GgufChange::none);
}

TEST_CASE("gguf: biases of a Llama are those of its architecture, and a tied head is no tensor") {
  const auto names = names_of(decoder_of(
      "llama", R"("attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true)"));
  CHECK(names.at("blk.0.attn_q.bias") == GgufChange::heads_interleaved);
  CHECK(names.contains("blk.0.attn_output.bias"));
  CHECK(names.contains("blk.0.ffn_down.bias"));
  CHECK_FALSE(names.contains("output.weight"));
}

TEST_CASE("gguf: longer positions are fields, or factors of frequencies where they are read") {
  const auto scaled = [](const std::string& type, const std::string& section) {
    return decoder_of(type, kFewHeads + R"(, "rope_scaling": {)" + section + "}");
  };
  const std::string llama3 =
      R"("rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 64)";
  const GgufModel gguf = known(scaled("llama", llama3));
  REQUIRE(gguf.rope_freqs.size() == 3);
  CHECK(gguf.rope_freqs[0] == 1);  // a turn in 2 pi positions, below 64 / 4
  CHECK(gguf.rope_freqs[2] == 8);  // one in 2 pi 10000^(2/3), above 64 / 1
  CHECK(gguf.rope_freqs[1] > 1);
  CHECK_THAT(refused(scaled("qwen2", llama3)), Contains("\"llama3\""));
  CHECK_THAT(refused(scaled("llama", R"("rope_type": "dynamic", "factor": 2.0)")),
             Contains("dynamic"));
  const GgufModel linear = known(scaled("qwen3", R"("rope_type": "linear", "factor": 4.0)"));
  CHECK(std::get<std::string>(*field(linear, "rope.scaling.type")) == "linear");
  CHECK(real(linear, "rope.scaling.factor") == 4);
  const std::string yarn =
      R"("rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32)";
  const GgufModel longer = known(scaled("qwen2", yarn));
  CHECK(std::get<std::string>(*field(longer, "rope.scaling.type")) == "yarn");
  CHECK(size(longer, "rope.scaling.original_context_length") == 32);
  CHECK_THAT(refused(scaled("qwen2", yarn + R"(, "attention_factor": 1.0)")),
             Contains("attention_factor"));
}

TEST_CASE("gguf: a window that an architecture lacks is its context") {
  const GgufModel whole = known(decoder_of("mistral", kFewHeads + R"(, "sliding_window": null)"));
  CHECK(whole.architecture == "llama");
  CHECK(size(whole, "context_length") == 6);
  CHECK(whole.warnings.empty());
  const GgufModel window = known(decoder_of("mistral", kFewHeads + R"(, "sliding_window": 4)"));
  CHECK(size(window, "context_length") == 4);
  REQUIRE(window.warnings.size() == 1);
  CHECK_THAT(window.warnings[0], Contains("sliding_window 4"));
}

TEST_CASE("gguf: Qwens keep the rows of their heads") {
  const auto qwen2 = names_of(decoder_of("qwen2", R"("num_key_value_heads": 2)"));
  CHECK(qwen2.at("blk.0.attn_q.weight") == GgufChange::none);
  CHECK(qwen2.contains("blk.0.attn_k.bias"));
  CHECK_FALSE(qwen2.contains("blk.0.attn_output.bias"));
  const auto qwen3 = names_of(decoder_of("qwen3", kFewHeads));
  CHECK(qwen3.at("blk.0.attn_q_norm.weight") == GgufChange::none);
  CHECK(qwen3.contains("blk.2.attn_k_norm.weight"));
  CHECK_THAT(refused(decoder_of("qwen3", kFewHeads + R"(, "attention_bias": true)")),
             Contains("attention_bias"));
  CHECK_THAT(refused(decoder_of("qwen2", R"("num_key_value_heads": 2, "hidden_act": "gelu")")),
             Contains("silu"));
}

TEST_CASE("gguf: norms of Gemmas have 1 added, and those of results names of their own") {
  const auto gemma = names_of(decoder_of("gemma", kFewHeads));
  CHECK(gemma.at("blk.0.attn_norm.weight") == GgufChange::plus_one);
  CHECK(gemma.at("output_norm.weight") == GgufChange::plus_one);
  CHECK(gemma.at("blk.0.ffn_up.weight") == GgufChange::none);
  CHECK_FALSE(gemma.contains("output.weight"));
  const std::string scalar = kFewHeads + R"(, "query_pre_attn_scalar": 6)";
  const ModelConfig second = decoder_of("gemma2", scalar + R"(, "sliding_window": 3)");
  const auto names = names_of(second);
  CHECK(names.at("blk.1.post_attention_norm.weight") == GgufChange::plus_one);
  CHECK(names.at("blk.1.ffn_norm.weight") == GgufChange::plus_one);
  CHECK(names.at("blk.1.post_ffw_norm.weight") == GgufChange::plus_one);
  const GgufModel gguf = known(second);
  CHECK(size(gguf, "attention.sliding_window") == 3);
  CHECK(real(gguf, "attn_logit_softcapping") == 50);
  CHECK(real(gguf, "final_logit_softcapping") == 30);
  const ModelConfig third =
      decoder_of("gemma3_text", scalar + R"(, "rope_local_base_freq": 20000.0)");
  CHECK(names_of(third).at("blk.0.attn_q_norm.weight") == GgufChange::plus_one);
  const GgufModel text = known(third);
  CHECK(text.architecture == "gemma3");
  CHECK(real(text, "rope.freq_base") == 1000000);
  CHECK(real(text, "rope.freq_base_swa") == 20000);
}

TEST_CASE("gguf: what a Gemma of llama.cpp does not compute is refused with the key") {
  const std::string scalar = kFewHeads + R"(, "query_pre_attn_scalar": 6)";
  CHECK_THAT(refused(decoder_of("gemma2", kFewHeads)), Contains("query_pre_attn_scalar"));
  CHECK_THAT(refused(decoder_of("gemma2", scalar + R"(, "attn_logit_softcapping": null)")),
             Contains("attn_logit_softcapping"));
  CHECK_THAT(refused(decoder_of("gemma3_text", scalar + R"(, "final_logit_softcapping": 5.0)")),
             Contains("final_logit_softcapping"));
  CHECK_THAT(refused(decoder_of("gemma3_text", scalar + R"(, "sliding_window_pattern": 2)")),
             Contains("all layers but every 6th"));
  CHECK_THAT(refused(decoder_of("gemma", kFewHeads + R"(, "tie_word_embeddings": false)")),
             Contains("tie_word_embeddings"));
}

TEST_CASE("gguf: GPT-2 and GPT-NeoX have their products in one tensor") {
  ModelConfig gpt2(*model_registry().find("gpt2"));
  for (const auto& [key, value] : {std::pair{"n_layer", 2}, {"n_embd", 8}, {"n_head", 2}})
    gpt2.set(key, int64_t{value});
  const auto names = names_of(gpt2);
  CHECK(names.size() == 4 + 2 * 12);
  for (const std::string name : {"token_embd.weight", "position_embd.weight", "output_norm.bias",
                                 "blk.1.attn_qkv.bias", "blk.0.ffn_down.weight"})
    CHECK(names.contains(name));
  CHECK(size(known(gpt2), "feed_forward_length") == 32);
  gpt2.set("activation_function", std::string("relu"));
  CHECK_THAT(refused(gpt2), Contains("activation_function"));
  ModelConfig neox(*model_registry().find("gpt_neox"));
  for (const auto& [key, value] : {std::pair{"num_hidden_layers", 2},
                                   {"hidden_size", 16},
                                   {"num_attention_heads", 2},
                                   {"intermediate_size", 12}})
    neox.set(key, int64_t{value});
  const GgufModel gguf = known(neox);
  CHECK(names_of(neox).contains("output.weight"));
  CHECK(names_of(neox).contains("blk.1.attn_qkv.weight"));
  CHECK(std::get<bool>(*field(gguf, "use_parallel_residual")));
  CHECK(size(gguf, "rope.dimension_count") == 2);
  neox.set("attention_bias", false);
  CHECK_THAT(refused(neox), Contains("attention_bias"));
}

TEST_CASE("gguf: other families have no architecture") {
  for (const std::string type : {"gptlite", "resnet", "benchmark"})
    CHECK_FALSE(gguf_of(ModelConfig(*model_registry().find(type))));
}
