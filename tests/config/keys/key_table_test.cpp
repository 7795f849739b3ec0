#include "runtime/config/keys/table/key_table.h"

#include <catch2/catch.hpp>
#include <set>

#include "models/registry.h"
#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/text.h"

using namespace dstrain;

namespace {
Facts empty_facts(const Node& root) {
  return find_facts(root, model_registry());
}
}  // namespace

TEST_CASE("key table: no key is in the table twice for the same type") {
  std::set<std::string> seen;
  for (const KeySpec& spec : model_registry().keys())
    for (const std::string& only : split_words(spec.only)) {
      INFO(spec.key << " " << only);
      CHECK(seen.insert(std::string(spec.key) + " " + only).second);
    }
}

TEST_CASE("key table: every default is a legal value of its key") {
  for (const KeySpec& spec : model_registry().keys()) {
    if (spec.fallback.empty()) continue;
    INFO(spec.key);
    CHECK(type_error(spec, read_value(spec.fallback, Source::file)).empty());
  }
}

TEST_CASE("key table: every key is in a section of the table") {
  std::set<std::string_view> sections;
  for (const KeySpec& spec : model_registry().keys())
    if (spec.type == Type::section) sections.insert(spec.key);
  for (const KeySpec& spec : model_registry().keys()) {
    const size_t dot = spec.key.rfind('.');
    if (dot == std::string_view::npos) continue;
    INFO(spec.key);
    CHECK(sections.count(spec.key.substr(0, dot)) == 1);
  }
}

TEST_CASE("key table: every alias has a target, and what is not honoured says why") {
  Node root;
  root.kind = Node::Kind::object;
  const Facts facts = empty_facts(root);
  for (const KeySpec& spec : model_registry().keys()) {
    INFO(spec.key);
    CHECK_FALSE(target_of(facts, spec).key.empty());
    if (spec.alias.empty() && !spec.rule && spec.state != State::honoured)
      CHECK_FALSE(spec.note.empty());
    if (spec.rule) CHECK_FALSE(spec.rule->published.empty());
  }
}

TEST_CASE("key table: a key of another type's is not found, but told") {
  const Node root = read_config(R"({"optimizer": {"type": "SGD"}})", Source::file);
  const Facts facts = find_facts(root, model_registry());
  std::string other;
  CHECK(find_key(facts, "optimizer.params.momentum")->only == "sgd");
  CHECK(find_key(facts, "optimizer.params.freeze_step", &other) == nullptr);
  CHECK(other == "onebitadam|onebitlamb");
  CHECK(find_key(facts, "optimizer.params.nothing") == nullptr);
}

TEST_CASE("key table: what a misspelt or misplaced key may have meant") {
  const Node root = read_config("{}", Source::file);
  const Facts facts = find_facts(root, model_registry());
  const auto [key, meant] = GENERATE(table<std::string, std::string>({
      {"train_step_batch_size", " (did you mean train_batch_size?)"},
      {"lr_scheduler", " (did you mean scheduler?)"},
      {"zero_optimization.stage3_param_persitence_threshold",
       " (did you mean zero_optimization.stage3_param_persistence_threshold?)"},
      {"zero_optimization.all_reduce_bucket_size",
       " (did you mean zero_optimization.reduce_bucket_size?)"},
      {"bf16.loss_scale", " (bf16 needs no loss scale: remove it)"},
      {"eval-interval", " (did you mean dstrain.eval_interval?)"},
      {"dstrain.model.n_layers", " (did you mean dstrain.model.n_layer?)"},
      {"hidden_size", " (did you mean dstrain.model.n_embd?)"},
      {"", ""},
  }));
  CHECK(hint_on(facts, key, Node{}).text == meant);
}

TEST_CASE("key table: what other programs call a key is told, and no hint leads to a refusal") {
  const Node root = read_config(R"({"scheduler": {"type": "WarmupLR"}})", Source::file);
  const Facts facts = find_facts(root, model_registry());
  const auto [key, value, meant] = GENERATE(table<std::string, std::string, std::string>({
      {"max_grad_norm", "1.0", " (did you mean gradient_clipping?)"},
      {"num_epochs", "3", " (say it with the option --epochs 3)"},
      {"output_dir", "\"out\"", " (say it with the option --output out)"},
      {"resume_from_checkpoint", "true", " (say it with the option --resume)"},
      {"max_steps", "3", " (did you mean dstrain.steps?)"},
      {"fp8", R"({"enabled": true})", " (there is no fp8 here: use bf16.enabled)"},
      {"memory_optimization", R"({"cpu_offloading": true})", ""},
      {"seed", "1", " (did you mean dstrain.seed?)"},
      {"label_smoothing_factor", "0.1", " (did you mean dstrain.label_smoothing?)"},
      {"micro_batch_size", "1", " (did you mean train_micro_batch_size_per_gpu?)"},
      {"micro_batch_per_gpu", "1", " (did you mean train_micro_batch_size_per_gpu?)"},
      {"learning_rate", "1", " (did you mean optimizer.params.lr?)"},
      {"zero_stage", "1", " (did you mean zero_optimization.stage?)"},
      {"save_steps", "1", " (did you mean dstrain.save_interval?)"},
      {"save-interval", "1", " (did you mean dstrain.save_interval?)"},
      {"log_interval", "1", " (did you mean steps_per_print?)"},
      {"log-interval", "1", " (did you mean steps_per_print?)"},
      {"gradient_checkpointing", "true", " (did you mean dstrain.recompute?)"},
      {"zero_optimization.cpu_offload_params", "true",
       " (did you mean zero_optimization.cpu_offload_param?)"},
      {"mixed_precision", "\"bf16\"", " (say it with bf16.enabled or fp16.enabled)"},
      {"dtype", "\"bf16\"", " (say it with bf16.enabled or fp16.enabled)"},
      {"pipeline.num_stages", "2", " (did you mean pipeline.stages?)"},
      {"warmup_steps", "2", " (did you mean scheduler.params.warmup_num_steps?)"},
      {"optimizer.weight_decay", "0.1", " (did you mean optimizer.params.weight_decay?)"},
      {"fp18", "1", ""},
      {"fp18", R"({"enabled": true})", " (did you mean fp16?)"},
      {"min_lr", "1", ""},
      {"fp16.opt_level", "\"O2\"", ""},
      {"model-parallel-size", "2", " (did you mean tensor_parallel.autotp_size?)"},
      {"zero_optimization.stag", "9", ""},
      {"gradient_clippin", "{}", ""},
  }));
  INFO(key);
  CHECK(hint_on(facts, key, read_value(value, Source::file)).text == meant);
}

TEST_CASE("key table: every name of other programs leads to a key of the table") {
  const Node root = read_config(R"({"scheduler": {"type": "WarmupLR"}})", Source::file);
  for (const char* name : {"seed",
                           "batch_size",
                           "micro_batch_size",
                           "gas",
                           "lr",
                           "weight_decay",
                           "grad_clip",
                           "stage",
                           "save_steps",
                           "eval_steps",
                           "log_interval",
                           "epochs",
                           "warmup_steps",
                           "lr_scheduler",
                           "recompute",
                           "num_stages",
                           "grad_accum_dtype",
                           "num_layers",
                           "hidden_size",
                           "num_heads",
                           "seq_length",
                           "data_path",
                           "timeout"}) {
    INFO(name);
    CHECK(find_key(find_facts(root, model_registry()), key_called(model_registry(), name)) !=
          nullptr);
  }
  CHECK(key_called(model_registry(), "--Random-Seed") == "dstrain.seed");
  CHECK(key_called(model_registry(), "nothing").empty());
}

TEST_CASE("key table: names of comments") {
  for (const char* name :
       {"_comment", "_read_the_docs", "//", "// stage", "#", "$schema", "comment"})
    CHECK(is_comment(name));
  for (const char* name : {"comms_logger", "commentary", "", "stage", "$stage"})
    CHECK_FALSE(is_comment(name));
}
