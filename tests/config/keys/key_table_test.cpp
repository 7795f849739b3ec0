#include "runtime/config/keys/key_table.h"

#include <catch2/catch.hpp>
#include <set>

#include "runtime/config/keys/coerce.h"
#include "runtime/config/read/reader.h"
#include "runtime/config/text.h"

using namespace dstrain;

namespace {
Facts empty_facts(const Node& root) {
  return find_facts(root);
}
}  // namespace

TEST_CASE("key table: no key is in the table twice for the same type") {
  std::set<std::string> seen;
  for (const KeySpec& spec : key_table())
    for (const std::string& only : split_words(spec.only)) {
      INFO(spec.key << " " << only);
      CHECK(seen.insert(std::string(spec.key) + " " + only).second);
    }
}

TEST_CASE("key table: every default is a legal value of its key") {
  for (const KeySpec& spec : key_table()) {
    if (spec.fallback.empty()) continue;
    INFO(spec.key);
    CHECK(type_error(spec, read_value(spec.fallback, Source::file)).empty());
  }
}

TEST_CASE("key table: every key is in a section of the table") {
  std::set<std::string_view> sections;
  for (const KeySpec& spec : key_table())
    if (spec.type == Type::section) sections.insert(spec.key);
  for (const KeySpec& spec : key_table()) {
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
  for (const KeySpec& spec : key_table()) {
    INFO(spec.key);
    CHECK_FALSE(target_of(facts, spec).key.empty());
    if (spec.alias.empty() && !spec.rule && spec.state != State::honoured)
      CHECK_FALSE(spec.note.empty());
    if (spec.rule) CHECK_FALSE(spec.rule->published.empty());
  }
}

TEST_CASE("key table: a key of another type's is not found, but told") {
  const Node root = read_config(R"({"optimizer": {"type": "SGD"}})", Source::file);
  const Facts facts = find_facts(root);
  std::string other;
  CHECK(find_key(facts, "optimizer.params.momentum")->only == "sgd");
  CHECK(find_key(facts, "optimizer.params.freeze_step", &other) == nullptr);
  CHECK(other == "onebitadam|onebitlamb");
  CHECK(find_key(facts, "optimizer.params.nothing") == nullptr);
}

TEST_CASE("key table: what a misspelt or misplaced key may have meant") {
  const Node root = read_config("{}", Source::file);
  const Facts facts = find_facts(root);
  const auto [key, meant] = GENERATE(table<std::string, std::string>({
      {"train_step_batch_size", " (did you mean train_batch_size?)"},
      {"lr_scheduler", " (did you mean scheduler?)"},
      {"zero_optimization.stage3_param_persitence_threshold",
       " (did you mean zero_optimization.stage3_param_persistence_threshold?)"},
      {"zero_optimization.all_reduce_bucket_size",
       " (did you mean zero_optimization.reduce_bucket_size?)"},
      {"zero_optimization.zero_allow_untested_optimizer",
       " (did you mean zero_allow_untested_optimizer?)"},
      {"zero_optimization.offload_optimizer.max_in_cpu",
       " (did you mean zero_optimization.offload_param.max_in_cpu?)"},
      {"bf16.loss_scale", " (did you mean fp16.loss_scale?)"},
      {"eval-interval", " (did you mean dstrain.eval_interval?)"},
      {"dstrain.model.n_layers", " (did you mean dstrain.model.n_layer?)"},
      {"hidden_size", ""},
      {"", ""},
  }));
  CHECK(suggestion(facts, key) == meant);
}

TEST_CASE("key table: names of comments") {
  for (const char* name :
       {"_comment", "_read_the_docs", "//", "// stage", "#", "$schema", "comment"})
    CHECK(is_comment(name));
  for (const char* name : {"comms_logger", "commentary", "", "stage", "$stage"})
    CHECK_FALSE(is_comment(name));
}
