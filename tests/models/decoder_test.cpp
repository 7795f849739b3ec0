// Llama, Mistral, Qwen2 and Qwen3 as transformers has them: names and shapes of their files, heads, windows, position
// embeddings, from today's config.json and from older ones.
#include <catch2/catch.hpp>

#include "models/decoder/keys.h"
#include "tests/models/described_decoder.h"

using namespace dstrain;
using namespace dstrain::test;
using Catch::Contains;

namespace {

RotaryAttrs rotary_in(const std::string& members) {
  return attrs_of<RotaryAttrs>(decoder_of("llama", members), OpKind::rotary).front();
}

}  // namespace

TEST_CASE("decoders: published sizes have their numbers of parameters") {
  const auto parameters = [](const std::string& type,
                             std::initializer_list<std::pair<const char*, int64_t>> sizes) {
    ModelConfig model(*model_registry().find(type));
    for (const auto& [key, value] : sizes) model.set(key, value);
    return model.measures().parameters;
  };
  CHECK(parameters("llama", {}) == 6'738'415'616);  // Llama-2-7B
  CHECK(parameters("mistral", {}) == 7'241'732'096);
  CHECK(parameters("qwen2", {{"num_hidden_layers", 28},
                             {"hidden_size", 3584},
                             {"intermediate_size", 18944},
                             {"num_attention_heads", 28},
                             {"num_key_value_heads", 4},
                             {"vocab_size", 152064}}) == 7'615'616'512);
  CHECK(parameters("qwen3", {{"num_hidden_layers", 36},
                             {"hidden_size", 4096},
                             {"intermediate_size", 12288},
                             {"num_attention_heads", 32},
                             {"num_key_value_heads", 8}}) == 8'190'735'360);
}

TEST_CASE("decoders: tensors have transformers' names and shapes") {
  auto llama = decoder_shapes(decoder_of("llama", R"("num_key_value_heads": 2)"));
  CHECK(llama.size() == 2 + 3 * 9 + 1);
  CHECK(llama.at("model.embed_tokens.weight") == "(11, 24)");
  CHECK(llama.at("model.layers.2.self_attn.q_proj.weight") == "(24, 24)");
  CHECK(llama.at("model.layers.2.self_attn.k_proj.weight") == "(12, 24)");
  CHECK(llama.at("model.layers.0.mlp.down_proj.weight") == "(24, 20)");
  CHECK(llama.at("model.norm.weight") == "(24)");
  CHECK(llama.at("lm_head.weight") == "(11, 24)");
  llama = decoder_shapes(decoder_of(
      "llama",
      R"("head_dim": 8, "attention_bias": true, "mlp_bias": true, "tie_word_embeddings": true)"));
  CHECK(llama.size() == 2 + 3 * 16);
  CHECK(llama.at("model.layers.0.self_attn.q_proj.weight") == "(32, 24)");
  CHECK(llama.at("model.layers.0.self_attn.o_proj.bias") == "(24)");
  CHECK(llama.at("model.layers.0.mlp.gate_proj.bias") == "(20)");
  const auto qwen2 = decoder_shapes(decoder_of("qwen2", R"("num_key_value_heads": null)"));
  CHECK(qwen2.size() == 2 + 3 * 12 + 1);
  CHECK(qwen2.at("model.layers.1.self_attn.v_proj.bias") == "(24)");
  const auto qwen3 = decoder_shapes(decoder_of("qwen3", R"("num_key_value_heads": 2)"));
  CHECK(qwen3.size() == 2 + 3 * 11 + 1);
  CHECK(qwen3.at("model.layers.0.self_attn.q_proj.weight") == "(512, 24)");  // heads of 128
  CHECK(qwen3.at("model.layers.0.self_attn.k_norm.weight") == "(128)");
  CHECK(decoder_shapes(decoder_of("mistral", R"("num_key_value_heads": 1)"))
            .at("model.layers.0.self_attn.v_proj.weight") == "(6, 24)");
}

TEST_CASE("decoders: files of a model with a tied head may have its table as the head alone") {
  const ForeignNames tied = foreign_names_of(decoder_of("qwen2", R"("num_key_value_heads": 2,
                                                          "tie_word_embeddings": true)"));
  REQUIRE(tied.stored_names.size() == 1);
  CHECK(tied.stored_names[0].tensor == "model.embed_tokens.weight");
  CHECK(tied.stored_names[0].stored == "lm_head.weight");
  CHECK(decoder_shapes(decoder_of("qwen2", R"("num_key_value_heads": 2)"))
            .contains("model.embed_tokens.weight"));
  CHECK(foreign_names_of(decoder_of("llama")).stored_names.empty());
}

TEST_CASE("decoders: windows are transformers'") {
  using Windows = std::vector<int64_t>;
  const std::string one = R"("num_key_value_heads": 1)";
  CHECK(windows_of(decoder_of("mistral", one)) == Windows{4096, 4096, 4096});
  CHECK(windows_of(decoder_of("mistral", one + R"(, "sliding_window": null)")) == Windows{0, 0, 0});
  CHECK(windows_of(decoder_of("llama")) == Windows{0, 0, 0});
  CHECK(windows_of(decoder_of("qwen2", one + R"(, "sliding_window": 3)")) == Windows{0, 0, 0});
  const std::string on = one + R"(, "use_sliding_window": true, "sliding_window": 3)";
  CHECK(windows_of(decoder_of("qwen2", on)) == Windows{0, 0, 0});
  CHECK(windows_of(decoder_of("qwen2", on + R"(, "max_window_layers": 2)")) == Windows{0, 0, 3});
  const std::string types =
      R"(, "layer_types": ["sliding_attention", "full_attention", "sliding_attention"])";
  CHECK(windows_of(decoder_of("qwen3", on + types)) == Windows{3, 0, 3});
  CHECK_THAT(decoder_error("qwen3", on + R"(, "layer_types": ["full_attention"])"),
             Contains("layer_types has 1 layers, and num_hidden_layers is 3"));
  CHECK_THAT(decoder_error("qwen3", on + R"(, "layer_types": ["a", "b", "c"])"),
             Contains("a layer of type \"a\" is not available"));
}

TEST_CASE("decoders: a null that is no default is honoured") {
  TempDir dir;
  const std::string nulls =
      R"("num_key_value_heads": null, "sliding_window": null, "head_dim": null)";
  const LoadedConfig mistral = asked_decoder("mistral", nulls, dir).check();
  CHECK(verdict(mistral, "dstrain.model.sliding_window") == "honoured");
  CHECK(verdict(mistral, "dstrain.model.num_key_value_heads") == "honoured");
  CHECK(verdict(mistral, "dstrain.model.head_dim") == "no_effect: unset");
}

TEST_CASE("decoders: position embeddings of both versions of config.json") {
  CHECK(rotary_in("").kind == RotaryKind::plain);
  CHECK(rotary_in("").theta == 10000);
  CHECK(rotary_in("").head_size == 6);
  CHECK(rotary_in(R"("rope_theta": 500, "rope_scaling": null)").theta == 500);
  const std::string llama3 =
      R"("factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192)";
  const RotaryAttrs today =
      rotary_in(R"("rope_parameters": {"rope_type": "llama3", "rope_theta": 500, )" + llama3 + "}");
  CHECK(today.kind == RotaryKind::llama3);
  CHECK(today.original_positions == 8192);
  CHECK(today.factor == 8);
  CHECK(rotary_in(R"("rope_theta": 500, "rope_scaling": {"rope_type": "llama3", )" + llama3 +
                  "}") == today);
  CHECK(rotary_in(R"("rope_theta": 500, "rope_scaling": {"type": "llama3", )" + llama3 + "}") ==
        today);
  const RotaryAttrs yarn =
      rotary_in(R"("rope_scaling": {"type": "yarn", "factor": 4.0, "beta_fast": 16})");
  CHECK(yarn.kind == RotaryKind::yarn);
  CHECK(yarn.original_positions == 6);  // max_position_embeddings
  CHECK(yarn.beta_fast == 16);
  CHECK(yarn.attention_factor == 0);
  CHECK_THAT(decoder_error("llama", R"("rope_parameters": {"rope_type": "longrope"})"),
             Contains("rope_type") && Contains("expected one of"));
  CHECK_THAT(decoder_error("llama", R"("rope_parameters": {"partial_rotary_factor": 0.5})"),
             Contains("positions in a part of each head"));
  CHECK(models::decoder_exceeds_context(
      decoder_of("llama", R"("rope_scaling": {"type": "dynamic", "factor": 2.0})")));
}

TEST_CASE("decoders: rope_parameters and rope_scaling say the same, or are an error") {
  const std::string today =
      R"("rope_parameters": {"rope_type": "linear", "rope_theta": 500, "factor": 2})";
  const RotaryAttrs linear = rotary_in(today);
  CHECK(rotary_in(today + R"(, "rope_scaling": {})") == linear);
  CHECK(rotary_in(today + R"(, "rope_scaling": null)") == linear);
  CHECK(rotary_in(today + R"(, "rope_theta": 500.0,
                  "rope_scaling": {"type": "linear", "factor": 2.0})") == linear);
  CHECK(rotary_in(R"("rope_scaling": {"rope_type": "linear", "rope_theta": 500, "factor": 2})") ==
        linear);
  const std::string together =
      "dstrain.model.rope_scaling: is given together with dstrain.model.rope_parameters, which has "
      "another ";
  CHECK_THAT(decoder_error("llama", today + R"(, "rope_theta": 500,
                           "rope_scaling": {"rope_type": "linear", "factor": 4})"),
             Contains(together + "factor: keep one"));
  // transformers take the default here, and not that of the other section.
  CHECK_THAT(
      decoder_error("llama", today + R"(, "rope_scaling": {"rope_type": "linear", "factor": 2})"),
      Contains(together + "rope_theta: keep one"));
  CHECK_THAT(decoder_error("llama", today, {"dstrain.model.rope_scaling.factor=2"}),
             Contains("--set: " + together + "rope_type: keep one"));
  CHECK_THAT(decoder_error("llama", R"("rope_scaling": {"type": "linear", "factor": 2})",
                           {"dstrain.model.rope_parameters.factor=4"}),
             Contains("--set: dstrain.model.rope_parameters: is given together with "
                      "dstrain.model.rope_scaling, which has another factor: keep one"));
}

TEST_CASE("decoders: rope_theta outside and inside of a section is one number") {
  const std::string inside = R"("rope_parameters": {"rope_type": "default", "rope_theta": 500.0})";
  CHECK(rotary_in(inside + R"(, "rope_theta": 500)").theta == 500);
  CHECK(rotary_in(R"("rope_theta": 500, "rope_parameters": {"rope_type": "default"})").theta ==
        500);
  CHECK_THAT(decoder_error("llama", inside, {"dstrain.model.rope_theta=777"}),
             Contains("--set: dstrain.model.rope_theta: is given together with "
                      "dstrain.model.rope_parameters.rope_theta, which is 500: keep one"));
  CHECK_THAT(decoder_error("llama", R"("rope_theta": 777,
                           "rope_scaling": {"type": "linear", "factor": 2, "rope_theta": 500})"),
             Contains("with dstrain.model.rope_scaling.rope_theta, which is 500: keep one"));
  CHECK(rotary_in(R"("rope_theta": 3580165449)").theta == 3580165449);
}

TEST_CASE("decoders: rope_type goes before type, in any order") {
  for (const char* const section : {"rope_scaling", "rope_parameters"})
    for (const char* const names : {R"("type": "default", "rope_type": "linear")",
                                    R"("rope_type": "linear", "type": "default")"}) {
      const std::string text = fmt::format(R"("{}": {{{}, "factor": 2}})", section, names);
      INFO(text);
      CHECK(rotary_in(text).kind == RotaryKind::linear);
      TempDir dir;
      CHECK(verdict(asked_decoder("llama", text, dir).check(),
                    fmt::format("dstrain.model.{}.type", section)) ==
            "no_effect: rope_type goes before it");
    }
}

TEST_CASE("decoders: factors that a position embedding needs are missed by name") {
  CHECK_THAT(decoder_error("llama", R"("rope_scaling": {"type": "linear"})"),
             Contains("dstrain.model.rope_scaling.type: \"linear\" needs factor, above 0, in the "
                      "same section"));
  for (const std::string kind : {"linear", "dynamic", "yarn"})
    CHECK_THAT(decoder_error("llama", R"("rope_parameters": {"rope_type": ")" + kind + "\"}"),
               Contains("dstrain.model.rope_parameters.rope_type: \"" + kind + "\" needs factor"));
  for (const std::string kind : {"linear", "dynamic"})
    CHECK_THAT(
        decoder_error("llama", R"("rope_scaling": {"factor": null, "type": ")" + kind + "\"}"),
        Contains("\"" + kind + "\" needs factor"));
  CHECK_THAT(decoder_error("llama", R"("rope_scaling": {"rope_type": "llama3", "factor": 8.0})"),
             Contains("\"llama3\" needs low_freq_factor and high_freq_factor, above 0"));
  CHECK_THAT(decoder_error("llama", "", {"dstrain.model.rope_parameters.rope_type=linear"}),
             Contains("--set: dstrain.model.rope_parameters.rope_type: \"linear\" needs factor"));
}

TEST_CASE("decoders: a factor of yarn that is null follows from the positions") {
  const std::string yarn = R"("rope_scaling": {"type": "yarn", "factor": null)";
  CHECK(rotary_in(yarn + R"(, "original_max_position_embeddings": 2})").factor == 3);
  CHECK(rotary_in(yarn + "}").factor == 1);  // of 6 positions
  CHECK(rotary_in(R"("rope_parameters": {"rope_type": "yarn", "factor": null,
                     "original_max_position_embeddings": 4})")
            .factor == 1.5);
}

TEST_CASE("decoders: fields of published files that change nothing") {
  TempDir dir;
  const LoadedConfig loaded =
      asked_decoder("llama", R"("is_llama_config": true, "rope_interleaved": false,
                                "max_sequence_length": 2048, "unsloth_fixed": true,
                                "unsloth_version": "2024.9", "transformers.js_config":
                                {"kv_cache_dtype": {"q4f16": "float16"}})",
                    dir)
          .check();
  CHECK_FALSE(has_errors(loaded.verdicts));
  CHECK(verdict(loaded, "dstrain.model.rope_interleaved") == "no_effect: the usual");
  CHECK(verdict(loaded, "dstrain.model.unsloth_version") == "no_effect: what wrote the file");
  CHECK(verdict(loaded, "dstrain.model.transformers.js_config") == "no_effect: transformers.js's");
  CHECK_THAT(decoder_error("llama", R"("rope_interleaved": true)"),
             Contains("pairs of neighbouring columns: only false is available"));
}

TEST_CASE("decoders: fields that transformers leaves out are told, and change nothing") {
  const std::string yarn = R"("rope_type": "yarn", "factor": 4.0,
                              "original_max_position_embeddings": 2)";
  const RotaryAttrs plain = rotary_in(R"("rope_scaling": {)" + yarn + "}");
  for (const std::string section : {"rope_scaling", "rope_parameters"}) {
    TempDir dir;
    const std::string members = fmt::format(
        R"("{}": {{{}, "attn_factor": 0.8, "alpha": null, "beta_fast": null}},
           "original_max_position_embeddings": 3)",
        section, yarn);
    const LoadedConfig loaded = asked_decoder("llama", members, dir).check();
    CHECK_FALSE(has_errors(loaded.verdicts));
    CHECK(verdict(loaded, "dstrain.model." + section + ".attn_factor") ==
          "no_effect: transformers leaves it out");
    CHECK(verdict(loaded, "dstrain.model." + section + ".alpha") ==
          "no_effect: transformers leaves it out");
    CHECK(verdict(loaded, "dstrain.model.original_max_position_embeddings") ==
          "no_effect: transformers leaves it out: "
          "dstrain.model.rope_parameters.original_max_position_embeddings counts");
    CHECK(std::ranges::any_of(loaded.warnings, [](const std::string& warning) {
      return warning.find("attn_factor") != std::string::npos;
    }));
    CHECK(rotary_in(members) == plain);
  }
  // A misspelt option is none of transformers' files.
  CHECK_THAT(decoder_error("llama", R"("rope_scaling": {)" + yarn + "}",
                           {"dstrain.model.rope_scaling.attn_factor=0.8"}),
             Contains("rope_scaling.attn_factor: unknown key"));
}

TEST_CASE("decoders: unknown fields that are null, and layers of full attention, say nothing") {
  for (const std::string type : {"llama", "mistral"}) {
    TempDir dir;
    const LoadedConfig loaded =
        asked_decoder(
            type,
            R"("num_key_value_heads": 2, "a_new_field": null, "layer_types": ["full_attention", "full_attention",
                         "full_attention"])",
            dir)
            .check();
    CHECK_FALSE(has_errors(loaded.verdicts));
    CHECK(verdict(loaded, "dstrain.model.a_new_field") == "no_effect: unset");
    CHECK(verdict(loaded, "dstrain.model.layer_types") == "no_effect: the usual");
    CHECK_THAT(decoder_error(type, R"("layer_types": ["sliding_attention"])"),
               Contains("layer_types: layers of this family have no window: only "
                        "\"full_attention\" is available"));
  }
  CHECK_THAT(decoder_error("llama", R"("a_new_field": 0)"), Contains("unknown key"));
}

TEST_CASE("decoders: values that do not fit each other are one error") {
  CHECK_THAT(decoder_error("llama", "", {"dstrain.model.num_attention_heads=5"}),
             Contains("hidden_size 24 is not a multiple of num_attention_heads 5"));
  CHECK_THAT(decoder_error("llama", R"("num_key_value_heads": 3)"),
             Contains("num_attention_heads 4 is not a multiple of num_key_value_heads 3"));
  CHECK_THAT(decoder_error("llama", R"("head_dim": 7)"), Contains("the position embedding: "));
  CHECK_THAT(decoder_error("llama", R"("hidden_act": "relu")"), Contains("expected one of"));
  CHECK_THAT(decoder_error("qwen2", R"("num_key_value_heads": 4, "mlp_bias": true)"),
             Contains("biases of the MLP's products"));
}
