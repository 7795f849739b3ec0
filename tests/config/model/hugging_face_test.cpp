// A model that comes from the config.json of transformers: verdicts on its fields, defaults, and what a run writes.
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "runtime/config/model/family.h"
#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;
using Catch::Contains;

namespace {

// What save_pretrained of transformers 4 writes for GPT-2, with two fields of an older one.
constexpr const char* kVersion4 = R"({
  "_name_or_path": "gpt2",
  "activation_function": "gelu_new",
  "architectures": ["GPT2LMHeadModel"],
  "attn_pdrop": 0.0,
  "bos_token_id": 50256,
  "embd_pdrop": 0.25,
  "eos_token_id": 50256,
  "initializer_range": 0.02,
  "layer_norm_epsilon": 1e-05,
  "model_type": "gpt2",
  "n_ctx": 16,
  "n_embd": 12,
  "n_head": 3,
  "n_inner": null,
  "n_layer": 2,
  "n_positions": 16,
  "reorder_and_upcast_attn": false,
  "resid_pdrop": 0.1,
  "scale_attn_by_inverse_layer_idx": false,
  "scale_attn_weights": true,
  "summary_activation": null,
  "summary_first_dropout": 0.1,
  "summary_proj_to_labels": true,
  "summary_type": "cls_index",
  "summary_use_proj": true,
  "task_specific_params": {"text-generation": {"do_sample": true, "max_length": 50}},
  "torch_dtype": "float16",
  "transformers_version": "4.30.0",
  "use_cache": true,
  "vocab_size": 31
}
)";

struct ModelFolder {
  explicit ModelFolder(const std::string& config) { dir.write("config.json", config); }
  Ask ask(const std::string& members = "", std::vector<std::string> sets = {}) const {
    Ask a = test::ask(trains_with(members), std::move(sets));
    a.request.model = dir.path();
    return a;
  }
  TempDir dir;
};

std::string with(const std::string& member) {
  std::string text = kVersion4;
  const std::string name = member.substr(0, member.find(':'));
  const size_t at = text.find("  " + name + ":");
  if (at == std::string::npos) return "{" + member + "," + text.substr(1);
  return text.replace(at, text.find('\n', at) - at, member + ",");
}

// The verdict on a field, and whether the configuration trains.
std::string verdict_with(const std::string& member) {
  const std::string name = member.substr(1, member.find('"', 1) - 1);
  return verdict(ModelFolder(with(member)).ask().check(), "dstrain.model." + name);
}

}  // namespace

TEST_CASE("config.json: the fields of transformers' GPT-2 are its keys") {
  const ModelFolder folder(kVersion4);
  const LoadedConfig loaded = folder.ask().load();
  const ModelConfig& model = loaded.job.model;
  CHECK(model.family().type == "gpt2");
  CHECK(model.layers() == 2);
  CHECK(model.width() == 12);
  CHECK(model.context() == 16);
  CHECK(model.vocabulary() == 31);
  CHECK(model.integer("n_inner") == 0);
  CHECK(model.real("embd_pdrop") == 0.25);
  CHECK(loaded.job.model_directory == folder.dir.path());
  CHECK(loaded.job.init_weights == folder.dir.path());
  CHECK(loaded.job.save.usual == DType::f16);
  CHECK(loaded.config_json == kVersion4);
  CHECK(setting(loaded, "dstrain.model.n_layer").origin == folder.dir / "config.json" + ":16:3");
}

TEST_CASE("config.json: absent fields have transformers' defaults") {
  const Job job = ModelFolder(R"({"model_type": "gpt2"})").ask().job();
  CHECK(job.model == ModelConfig(*model_registry().find("gpt2")));
  CHECK(job.model.vocabulary() == 50257);
  CHECK(job.model.real("resid_pdrop") == 0.1);
  CHECK(job.model.flag("tie_word_embeddings"));
  CHECK(job.save.usual == DType::f32);
}

TEST_CASE("config.json: every field is honoured, harmless or an error by name") {
  const LoadedConfig loaded = ModelFolder(kVersion4).ask().check();
  CHECK_FALSE(has_errors(loaded.verdicts));
  CHECK(verdict(loaded, "dstrain.model.n_layer") == "honoured");
  CHECK(verdict(loaded, "dstrain.model.model_type") == "honoured");
  CHECK(verdict(loaded, "dstrain.model.use_cache") == "no_effect: training keeps no cache");
  CHECK(verdict(loaded, "dstrain.model.summary_activation") == "no_effect: unset");
  CHECK(verdict(loaded, "dstrain.model._name_or_path") == "no_effect: a comment");
  CHECK(verdict(loaded, "dstrain.model.scale_attn_weights") == "no_effect: the usual");
  CHECK(verdict_with(R"("scale_attn_weights": false)") ==
        "not_yet: scores that are not divided by the root of the head's size: only true is "
        "available");
  CHECK_THAT(verdict_with(R"("scale_attn_by_inverse_layer_idx": true)"), Contains("not_yet: "));
  CHECK_THAT(verdict_with(R"("add_cross_attention": true)"), Contains("not_yet: "));
  CHECK_THAT(verdict_with(R"("quantization_config": {"bits": 4})"), Contains("refused: "));
  CHECK_THAT(verdict_with(R"("auto_map": {"AutoModel": "m.M"})"), Contains("refused: "));
  CHECK_THAT(verdict_with(R"("n_experts": 8)"), Contains("unknown"));
  CHECK_THAT(verdict_with(R"("activation_function": "gelu")"), Contains("error: expected one of"));
  CHECK_THAT(verdict_with(R"("n_layer": 1000000000)"), Contains("error: expected an integer"));
  CHECK_THAT(verdict_with(R"("torch_dtype": "float64")"), Contains("error: expected one of"));
  CHECK(verdict_with(R"("dtype": "bfloat16")") == "honoured");
}

TEST_CASE("config.json: an error of a field names its place, and no way on leaves it out") {
  const ModelFolder folder(with(R"("scale_attn_weights": false)"));
  std::string error;
  try {
    folder.ask().load();
  } catch (const UserError& e) {
    error = e.what();
  }
  CHECK_THAT(error, Contains(folder.dir / "config.json" + ":") &&
                        Contains("dstrain.model.scale_attn_weights: ") && !Contains("--ignore"));
}

TEST_CASE("config.json: the type is model_type, and type is ours") {
  const auto error_of = [](const std::string& text) { return ModelFolder(text).ask().error(); };
  CHECK_THAT(error_of(R"({"n_layer": 2})"), Contains("there is no \"model_type\" in it"));
  CHECK_THAT(error_of(R"({"model_type": "bert", "hidden_size": 4, "n_embd": 8})"),
             Contains("dstrain.model.model_type: expected one of \"gpt2\", \"llama\", \"mistral\", "
                      "\"qwen2\", \"qwen3\", found \"bert\"") &&
                 !Contains("hidden_size") && !Contains("--ignore"));
  CHECK_THAT(error_of(R"({"model_type": "gpt2", "type": "gpt2"})"),
             Contains("is given together with dstrain.model.type"));
  const TempFile file(R"({"model_type": "gpt2", "n_layer": 3, "use_cache": true})", "m.json");
  Ask a = ask(trains_with(""));
  a.request.model = file.path();
  Job job = a.job();
  CHECK(job.model.family().type == "gpt2");
  CHECK(job.model.layers() == 3);
  CHECK(job.model_directory.empty());
  CHECK(job.init_weights.empty());
}

TEST_CASE("config.json: dstrain.model names a folder as --model does") {
  const ModelFolder folder(kVersion4);
  const Ask a = ask(trains_with("\"dstrain\": {\"model\": \"" + folder.dir.path() + "/\"}"),
                    {"dstrain.model.n_head=2"});
  const LoadedConfig loaded = a.load();
  CHECK(loaded.job.model_directory == folder.dir.path());
  CHECK(loaded.job.model.integer("n_head") == 2);
  CHECK_THAT(ask(trains_with(R"("dstrain": {"model": "none"})")).error(),
             Contains("c.json:1:14: dstrain.model: none: expected gptlite, benchmark, gpt2, llama, "
                      "mistral, qwen2, qwen3, the folder of a model"));
  CHECK(ask(trains_with(R"("dstrain": {"model": "benchmark"})"),
            {"dstrain.model.in_size=2", "dstrain.model.hidden_size=3", "dstrain.model.out_size=4",
             "dstrain.model.n_layer=1"})
            .job()
            .model.family()
            .type == "benchmark");
}

TEST_CASE("config.json: a folder without one says what it is") {
  const TempDir dir;
  Ask a = ask(trains_with(""));
  a.request.model = dir.path();
  CHECK(a.error() == "--model " + dir.path() +
                         ": there is no config.json in the folder, which save_pretrained writes");
  dir.write("resolved_config.json", "{}");
  CHECK_THAT(a.error(), Contains("--init_weights starts from its weights"));
}

TEST_CASE("config.json: --init_weights says where weights come from instead") {
  const ModelFolder folder(kVersion4);
  Ask a = folder.ask();
  a.request.init_weights = "random";
  CHECK(a.job().init_weights.empty());
  CHECK(a.job().model_directory == folder.dir.path());
  a.request.init_weights = "./random";
  CHECK(a.job().init_weights == "./random");
  a.request.init_weights.reset();
  a.request.resume = "out";
  CHECK(a.job().init_weights.empty());
}

TEST_CASE("config.json: what a run writes is the file, or what changes of it") {
  const ModelFolder folder(kVersion4);
  CHECK(folder.ask("", {"dstrain.steps=3"}).load().config_json == kVersion4);
  auto expected = nlohmann::ordered_json::parse(kVersion4);
  expected["resid_pdrop"] = 0.5;
  expected["torch_dtype"] = "bfloat16";
  CHECK(nlohmann::ordered_json::parse(
            folder.ask("", {"dstrain.model.resid_pdrop=0.5", "dstrain.save_dtype=bf16"})
                .load()
                .config_json) == expected);
  // A model of the configuration has all of its keys.
  const LoadedConfig own =
      ask(trains_with(R"("dstrain": {"model": {"type": "gpt2", "n_layer": 3}})")).load();
  const auto written = nlohmann::json::parse(own.config_json);
  CHECK(written["model_type"] == "gpt2");
  CHECK(written["architectures"] == nlohmann::json{"GPT2LMHeadModel"});
  CHECK(written["n_layer"] == 3);
  CHECK(written["n_inner"].is_null());
  CHECK(written["dtype"] == "float32");
  CHECK(ask(trains_with("")).load().config_json.empty());
}
