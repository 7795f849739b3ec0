#include "launcher/input/name_patterns.h"

#include <fmt/core.h>

#include <catch2/catch.hpp>

#include "tests/support/models.h"

namespace dstrain {
namespace {

std::string wrong(const Job& job) {
  const std::optional<WrongPattern> pattern = find_wrong_pattern(job);
  return pattern ? fmt::format("{}: {}", pattern->key, pattern->message) : "";
}

TEST_CASE("a pattern that is the name of no weight is an error") {
  Job job;
  job.model = GptLite{.n_layer = 12, .n_embd = 8, .n_head = 1, .block_size = 4, .vocab_size = 0};
  job.weight_decay_exclude = {"*.bias", "*ln*", "blocks.11.mlp.fc.weight", "lm_head.weight"};
  CHECK(wrong(job).empty());
  for (const char* pattern : {"bias", "blocks.12.*", "layers.0.bias", ""}) {
    job.weight_decay_exclude = {"*.bias", pattern};
    CHECK(wrong(job) ==
          fmt::format("dstrain.weight_decay_exclude: no weight has a name like \"{}\" (there are "
                      "token_embedding_table.weight, lm_head.weight, ...; \"*.bias\" excludes all "
                      "biases)",
                      pattern));
  }
  job.model.set("n_layer", 1);
  job.weight_decay_exclude = {"blocks.0.*", "ln.weight"};
  CHECK(wrong(job).empty());
}

TEST_CASE("a group's pattern that is the name of no parameter is an error, and all frozen, too") {
  Job job;
  job.model = GptLite{.n_layer = 2, .n_embd = 8, .n_head = 1, .block_size = 4, .vocab_size = 0};
  const auto with = [&job](std::vector<ParameterGroup> groups) {
    job.model.set_fine_tuning({.groups = std::move(groups)});
    return wrong(job);
  };
  CHECK(with({{.match = {"*.bias", "blocks.1.*"}, .trainable = false}}).empty());
  CHECK(with({{.match = {"*.bias", "h.*"}}}) ==
        "dstrain.parameter_groups: no parameter has a name like \"h.*\" (there are "
        "token_embedding_table.weight, lm_head.weight, ...)");
  CHECK(with({{.match = {"*"}, .trainable = false}}) ==
        "dstrain.parameter_groups: the groups freeze every parameter of the GPT-lite, so there is "
        "nothing to train");
}

TEST_CASE("an adapter's target that is the name of no product is an error") {
  Job job;
  job.model = GptLite{.n_layer = 2, .n_embd = 8, .n_head = 1, .block_size = 4, .vocab_size = 0};
  const auto with = [&job](LoraConfig lora) {
    job.model.set_fine_tuning({.groups = {}, .lora = std::move(lora)});
    return wrong(job);
  };
  CHECK(with({.all_linear = true}).empty());
  CHECK(with({.targets = {"qkv", "mlp.fc", "lm_head"}}).empty());
  CHECK(with({.targets = {"qkv", "q_proj"}}) ==
        "dstrain.lora.targets: no product has a name that ends in \"q_proj\" (there are qkv, "
        "out_proj, fc, proj)");
  CHECK(with({.targets = {"token_embedding_table"}}).starts_with("dstrain.lora.targets: "));
}

TEST_CASE("a module to train as a whole that the model does not have is an error") {
  Job job;
  job.model = ModelConfig(*model_registry().find("llama"));
  job.model.set("num_hidden_layers", int64_t{1});
  const auto with = [&job](std::vector<std::string> saved) {
    job.model.set_fine_tuning(
        {.groups = {}, .lora = LoraConfig{.all_linear = true, .saved = std::move(saved)}});
    return wrong(job);
  };
  CHECK(with({"embed_tokens", "lm_head", "layers.0.self_attn.q_proj"}).empty());
  CHECK(with({"embed"}).starts_with(
      "dstrain.lora.modules_to_save: no module has a name that ends in \"embed\" (there are "
      "parameters model.embed_tokens.weight, "));
  job.model.set("tie_word_embeddings", true);
  CHECK(with({"embed_tokens", "lm_head"}).empty());
  CHECK(with({"lm_head"}) ==
        "dstrain.lora.modules_to_save: the head of this model is its token embedding "
        "(model.embed_tokens.weight): name that module");
}

TEST_CASE("an expression that is found in the name of no layer is an error of a pipeline") {
  Job job;
  job.model = GptLite{.n_layer = 2, .n_embd = 8, .n_head = 1, .block_size = 4, .vocab_size = 0};
  job.pipeline.partition = "type:attention";
  CHECK(wrong(job).empty());  // one stage
  job.pipeline.stages = 2;
  CHECK(wrong(job) ==
        "pipeline.partition: \"type:attention\": no layer has such a name; the layers are "
        "embedding, blocks.0, blocks.1, head");
  job.pipeline.partition = "type:BLOCKS";
  CHECK(wrong(job).empty());
}

}  // namespace
}  // namespace dstrain
