// A model that comes from the config.json of transformers: verdicts on its fields, defaults, and what a run writes.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>

#include "runtime/config/family/family.h"
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

bool warns_of(const LoadedConfig& loaded, const std::string& text) {
  return std::ranges::any_of(
      loaded.warnings, [&](const std::string& w) { return w.find(text) != std::string::npos; });
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
  CHECK_THAT(verdict_with(R"("torch_dtype": "int8")"), Contains("error: expected one of"));
  CHECK(verdict_with(R"("dtype": "bfloat16")") == "honoured");
}

TEST_CASE("config.json: fields of older GPT-2s change nothing") {
  CHECK_THAT(verdict_with(R"("n_special": 0)"), Contains("no_effect: "));
  CHECK_THAT(verdict_with(R"("predict_special_tokens": true)"), Contains("no_effect: "));
  CHECK_THAT(verdict_with(R"("output_past": true)"), Contains("no_effect: "));
}

TEST_CASE("config.json: other names of dtypes, and one that files cannot have, become usual ones") {
  const auto loaded_with = [](const std::string& name) {
    return ModelFolder(with("\"torch_dtype\": \"" + name + "\"")).ask().load();
  };
  const auto written = [](const LoadedConfig& loaded) {
    return nlohmann::json::parse(loaded.config_json)["torch_dtype"];
  };
  const LoadedConfig bf16 = loaded_with("torch.bfloat16");
  CHECK(verdict(bf16, "dstrain.model.torch_dtype") == "honoured");
  CHECK(bf16.job.save.usual == DType::bf16);
  CHECK(written(bf16) == "bfloat16");
  const LoadedConfig f64 = loaded_with("float64");
  CHECK(verdict(f64, "dstrain.model.torch_dtype") ==
        "no_effect: there is no fp64: files have fp32");
  CHECK(f64.job.save.usual == DType::f32);
  CHECK(written(f64) == "float32");
  CHECK(warns_of(f64, "dstrain.model.torch_dtype: there is no fp64"));
  CHECK_FALSE(warns_of(bf16, "torch_dtype"));
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
  CHECK_THAT(error_of(R"({"model_type": null, "n_layer": 2})"),
             Contains("there is no \"model_type\" in it") && !Contains("n_layer"));
  CHECK_THAT(error_of(R"({"model_type": "bert", "hidden_size": 4, "n_embd": 8})"),
             Contains("dstrain.model.model_type: expected one of \"gpt2\", \"llama\", \"mistral\", "
                      "\"qwen2\", \"qwen3\", \"mixtral\", \"qwen2_moe\", "
                      "\"qwen3_moe\", \"olmoe\", \"deepseek_v3\", \"gemma\", \"gemma2\", "
                      "\"gemma3_text\", \"gpt_neox\", "
                      "found \"bert\"") &&
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

TEST_CASE("config.json: a file beside weights says how to take them") {
  const ModelFolder folder(kVersion4);
  Ask a = folder.ask();
  a.request.model = folder.dir / "config.json";
  const std::string hint = "--model " + folder.dir.path() + " takes those beside it";
  CHECK_FALSE(warns_of(a.load(), hint));
  folder.dir.write("model.safetensors", "");
  const LoadedConfig loaded = a.load();
  CHECK(loaded.job.init_weights.empty());
  CHECK(warns_of(loaded, hint));
  a.request.init_weights = "random";
  CHECK_FALSE(warns_of(a.load(), hint));
  const TempFile none(R"({"model_type": null, "n_layer": 2})", "m.json");
  a.request.model = none.path();
  CHECK_THAT(a.error(), Contains("there is no \"model_type\" in it") && !Contains("n_layer"));
}

TEST_CASE("config.json: its names are read beside our name of the type, too") {
  const auto loaded_with = [](const std::string& members) {
    return ask(trains_with(R"("dstrain": {"model": {)" + members + "}}")).load();
  };
  const LoadedConfig llama =
      loaded_with(R"("type": "llama", "rope_theta": 500, "rope_scaling": {"type": "llama3",
                     "factor": 8, "low_freq_factor": 1, "high_freq_factor": 4})");
  CHECK(llama.job.model.real("rope_parameters.rope_theta") == 500);
  CHECK(llama.job.model.text("rope_parameters.rope_type") == "llama3");
  const auto rope = nlohmann::json::parse(llama.config_json)["rope_parameters"];
  CHECK(rope == nlohmann::json::parse(R"({"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0,
                                          "low_freq_factor": 1.0, "high_freq_factor": 4.0})"));
  const LoadedConfig qwen2 =
      loaded_with(R"("type": "qwen2", "num_hidden_layers": 2, "num_key_value_heads": null,
                     "layer_types": ["full_attention", "sliding_attention"])");
  CHECK(qwen2.job.model.text("window_layers") == "full_attention,sliding_attention");
  CHECK(qwen2.job.model.integer("num_key_value_heads") == 32);
  const auto written = nlohmann::json::parse(qwen2.config_json);
  CHECK(written["layer_types"] == nlohmann::json{"full_attention", "sliding_attention"});
  CHECK_FALSE(written.contains("window_layers"));
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
                      "mistral, qwen2, qwen3, mixtral, qwen2_moe, qwen3_moe, olmoe, deepseek_v3, "
                      "gemma, gemma2, "
                      "gemma3_text, gpt_neox, resnet, exported, the "
                      "folder of a model"));
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
  std::filesystem::remove(dir / "resolved_config.json");
  dir.write("adapter_config.json", "{}");
  CHECK_THAT(a.error(), Contains("the folder holds adapters") && Contains("dstrain.lora.init"));
}

TEST_CASE("config.json: a folder of Hugging Face's cache names its snapshot") {
  const TempDir cache;
  const std::string model = cache / "models--org--a--b", snapshots = model + "/snapshots";
  std::filesystem::create_directories(model + "/refs");
  const auto error_of = [](const std::string& folder) {
    Ask a = ask(trains_with(""));
    a.request.model = folder;
    return a.error();
  };
  CHECK_THAT(error_of(model), Contains("without a snapshot") && Contains("`hf download org/a--b`"));
  CHECK_THAT(error_of(cache.path()), !Contains("cache"));
  for (const char* const revision : {"12", "34"})
    std::filesystem::create_directories(snapshots + "/" + revision);
  cache.write("models--org--a--b/refs/main", "12");
  CHECK_THAT(error_of(model), Contains("name its snapshot, " + snapshots + "/12"));
  CHECK_THAT(error_of(model + "/"), Contains("name its snapshot, " + model + "/snapshots/12"));
  CHECK_THAT(error_of(snapshots), Contains("name its snapshot, " + snapshots + "/12"));
  CHECK_THAT(error_of(cache.path()),
             Contains("name a snapshot in it, such as " + snapshots + "/12"));
  std::filesystem::remove(model + "/refs/main");
  CHECK_THAT(error_of(model), Contains(snapshots + "/34"));
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

TEST_CASE("config.json: a vocabulary is as large as its tokenizer, or as an option says") {
  const ModelFolder folder(kVersion4);  // 31 ids
  std::vector<std::string> asked_for;
  const auto with_ids = [&](int64_t ids, std::vector<std::string> sets = {},
                            const std::string& members = "") {
    Ask a = folder.ask(members, std::move(sets));
    a.request.count_ids = [&asked_for, ids](const std::string&,
                                            const std::vector<std::string>& added) {
      asked_for = added;
      return ids + static_cast<int64_t>(added.size());
    };
    return a;
  };
  for (const auto& [ids, vocabulary, stored] :
       std::vector<std::array<int64_t, 3>>{{0, 31, 0}, {30, 31, 0}, {31, 31, 0}, {33, 33, 31}}) {
    CAPTURE(ids);
    const Job job = with_ids(ids).job();
    CHECK(job.model.vocabulary() == vocabulary);
    CHECK(job.model.stored_vocabulary() == stored);
  }
  const std::string tokens = R"(dstrain.model.added_tokens=["a", "b"])";
  const LoadedConfig loaded = with_ids(30, {tokens}).load();
  CHECK(asked_for == std::vector<std::string>{"a", "b"});
  CHECK(loaded.job.data.added_tokens == asked_for);
  CHECK(loaded.job.model.vocabulary() == 32);
  auto expected = nlohmann::ordered_json::parse(kVersion4);
  expected["vocab_size"] = 32;
  CHECK(nlohmann::ordered_json::parse(loaded.config_json) == expected);
  // Fresh weights have no rows that are stored, and an option says how many ids there are.
  Ask fresh = with_ids(33);
  fresh.request.init_weights = "random";
  CHECK(fresh.job().model.stored_vocabulary() == 0);
  CHECK(with_ids(33, {"dstrain.model.vocab_size=64"}).job().model.vocabulary() == 64);
  CHECK_THAT(with_ids(0, {"dstrain.model.vocab_size=30"}).error(),
             Contains("30 is less than the 31 of the model"));
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

TEST_CASE("config.json: a text of our own is written as the list that transformers read") {
  const std::string qwen2 = R"({"model_type": "qwen2", "num_hidden_layers": 2)";
  const std::string set = "dstrain.model.window_layers=sliding_attention,full_attention";
  const auto written =
      nlohmann::json::parse(ModelFolder(qwen2 + "}").ask("", {set}).load().config_json);
  CHECK(written["layer_types"] == nlohmann::json{"sliding_attention", "full_attention"});
  CHECK_FALSE(written.contains("window_layers"));
  const ModelFolder listed(qwen2 + R"(, "layer_types": ["full_attention", "full_attention"]})");
  CHECK_THAT(listed.ask("", {set}).error(),
             Contains("dstrain.model.layer_types: is given together with "
                      "dstrain.model.window_layers, which has other types: keep one"));
}

TEST_CASE("config.json: a size that transformers derives is not written as null") {
  Ask a = ask(trains_with(""));
  a.request.model = "qwen2";
  const auto written = nlohmann::json::parse(a.load().config_json);
  CHECK(written["model_type"] == "qwen2");
  CHECK_FALSE(written.contains("head_dim"));
}

TEST_CASE("config.json: a run writes no field that --ignore leaves out") {
  const ModelFolder folder(R"({"model_type": "llama", "rope_theta": 500,
                               "rope_scaling": {"type": "linear", "factor": 2}})");
  Ask a = folder.ask();
  a.request.ignored = {"dstrain.model.rope_scaling"};
  CHECK(nlohmann::json::parse(a.load().config_json) ==
        nlohmann::json::parse(R"({"model_type": "llama", "rope_theta": 500})"));
}
