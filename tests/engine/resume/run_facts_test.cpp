// Every value that the numbers of a run depend on is a fact, and runs that differ in one have different
// fingerprints.
#include "runtime/engine/resume/run_facts.h"

#include <catch2/catch.hpp>
#include <functional>

#include "runtime/data/open_dataset.h"
#include "runtime/engine/resume/resume.h"
#include "tests/support/models.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

std::string repeated(const std::string& text) {
  std::string all;
  for (int i = 0; i < 40; ++i) all += text;
  return all;
}

class Folder {
 public:
  Folder() { dir_.write("text", repeated("abcd ")); }
  Job job() const {
    Job job;
    job.model = GptLite{.n_layer = 1, .n_embd = 8, .n_head = 2, .block_size = 8, .vocab_size = 5};
    job.data.paths = {dir_ / "text"};
    job.batch = {2, 2, 1};
    return job;
  }
  void write(const std::string& text) const { dir_.write("text", repeated(text)); }

 private:
  TempDir dir_;
};

RunFacts facts_of(const Job& job) {
  return run_facts(job, *open_dataset(job));
}

// Returns the names of the facts in which two runs differ.
std::vector<std::string> different(const RunFacts& a, const RunFacts& b) {
  REQUIRE(a.size() == b.size());
  std::vector<std::string> names;
  for (size_t i = 0; i < a.size(); ++i) {
    REQUIRE(a[i].name == b[i].name);
    CHECK((a[i] == b[i]) == (fingerprint_of(a[i]) == fingerprint_of(b[i])));
    if (a[i] != b[i]) names.push_back(a[i].name);
  }
  CHECK(names.empty() == (fingerprint_of(a) == fingerprint_of(b)));
  return names;
}

TEST_CASE("each value that numbers depend on is a fact of its own") {
  struct Change {
    std::string name;
    std::function<void(Job&)> apply;
  };
  const std::vector<Change> changes = {
      {"dstrain.model.n_head", [](Job& j) { j.model.set("n_head", 4); }},
      {"dstrain.model.activation", [](Job& j) { j.model.set("activation", "gelu"); }},
      {"dstrain.model.dropout", [](Job& j) { j.model.set("dropout", 0.2); }},
      {"dstrain.model.vocab_size", [](Job& j) { j.model.set("vocab_size", 6); }},
      {"dstrain.seed", [](Job& j) { j.seed = 7; }},
      {"dstrain.data.order", [](Job& j) { j.data.random_order = false; }},
      {"train_batch_size", [](Job& j) { j.batch.train_batch = 4; }},
      {"dstrain.steps", [](Job& j) { j.steps = 7; }},
      {"optimizer.type", [](Job& j) { j.optimizer.decoupled_decay = false; }},
      {"optimizer.params.lr", [](Job& j) { j.optimizer.lr = 1e-4; }},
      {"optimizer.params.betas", [](Job& j) { j.optimizer.beta2 = 0.99; }},
      {"gradient_clipping", [](Job& j) { j.gradient_clipping = 0.5; }},
      {"scheduler", [](Job& j) { j.schedule.kind = ScheduleKind::warmup; }},
      {"dtype", [](Job& j) { j.dtype = DType::bf16; }},
      {"communication_data_type", [](Job& j) { j.wire_dtype = DType::bf16; }},
      {"zero_optimization.zero_quantized_weights", [](Job& j) { j.quantize.weights = true; }},
      {"zero_optimization.zero_quantized_gradients", [](Job& j) { j.quantize.gradients = true; }},
      {"dstrain.comm_hook", [](Job& j) { j.hook.kind = HookKind::post_local_sgd; }},
      {"zero_optimization.stage", [](Job& j) { j.zero_stage = 2; }},
      {"dstrain.deterministic_collectives", [](Job& j) { j.rank_order_sums = false; }},
      {"sparse_gradients", [](Job& j) { j.sparse_gradients = true; }},
      {"shard ranks", [](Job& j) { j.shards.ranks = 2; }},
      {"shard ranks", [](Job& j) { j.shards.by_host = true; }},
      {"pipeline.partition", [](Job& j) { j.pipeline.partition = "memory"; }},
      {"sequence_parallel_size", [](Job& j) { j.sequence_ranks = 2; }},
      {"tensor_parallel.autotp_size", [](Job& j) { j.tensor_ranks = 2; }},
  };
  const Folder folder;
  const RunFacts facts = facts_of(folder.job());
  for (const Change& change : changes) {
    Job job = folder.job();
    change.apply(job);
    CHECK(different(facts, facts_of(job)) == std::vector<std::string>{change.name});
  }
}

TEST_CASE("how ranks are divided is no fact of a checkpoint") {
  const Folder folder;
  Job job = folder.job();
  const auto facts = kept_facts(facts_of(job));
  job.ranks = 8;
  job.pipeline.stages = job.sequence_ranks = job.tensor_ranks = 2;
  CHECK(kept_facts(facts_of(job)) == facts);
}

TEST_CASE("the tensors that an optimizer keeps are a fact of their own") {
  const Folder folder;
  const auto sgd = [&](double momentum) {
    Job job = folder.job();
    job.optimizer.kind = OptimizerKind::sgd;
    job.optimizer.momentum = momentum;
    return facts_of(job);
  };
  using Names = std::vector<std::string>;
  CHECK(different(sgd(0.9), sgd(0.8)) == Names{"optimizer.params.momentum"});
  CHECK(different(sgd(0.9), sgd(0)) == Names{"optimizer slots", "optimizer.params.momentum"});
  const auto slots = [&](OptimizerKind kind) {
    Job job = folder.job();
    job.optimizer.kind = kind;
    for (const RunFact& fact : facts_of(job))
      if (fact.name == "optimizer slots") return fact.value;
    return std::string();
  };
  CHECK(slots(OptimizerKind::adam) == "exp_avg, exp_avg_sq");
  CHECK(slots(OptimizerKind::muon) == "exp_avg, exp_avg_sq, of matrices exp_avg alone");
  CHECK(slots(OptimizerKind::adam_8bit) ==
        "exp_avg, exp_avg_sq, in 8 bits exp_avg_codes, exp_avg_absmax, exp_avg_sq_codes, "
        "exp_avg_sq_absmax");
}

TEST_CASE("what compression does to numbers is a fact where it is on, and no other") {
  const Folder folder;
  const auto with = [&](const std::function<void(Job&)>& apply) {
    Job job = folder.job();
    apply(job);
    return facts_of(job);
  };
  using Names = std::vector<std::string>;
  const auto loco = [](float beta, int64_t steps) {
    return [=](Job& j) { j.quantize = {true, true, true, beta, steps}; };
  };
  const std::string loco_key = "zero_optimization.zeropp_loco_param";
  CHECK(different(with(loco(0.8f, 4)), with(loco(0.1f, 4))) == Names{loco_key});
  CHECK(different(with(loco(0.8f, 4)), with(loco(0.8f, 5))) == Names{loco_key});
  const auto groups = [](bool quantized, int ranks) {
    return [=](Job& j) {
      j.quantize.gradients = quantized;
      j.shards.ranks = ranks;
    };
  };
  CHECK(different(with(groups(true, 0)), with(groups(true, 2))) ==
        Names{"quantized between groups", "shard ranks"});
  CHECK(different(with(groups(false, 0)), with(groups(false, 2))) == Names{"shard ranks"});
  const auto local = [](bool by_host) {
    return [=](Job& j) {
      j.hook.kind = HookKind::post_local_sgd;
      j.shards = {by_host ? 0 : 1, by_host, false};
    };
  };
  CHECK(different(with(local(true)), with(local(false))) ==
        Names{"dstrain.comm_hook", "shard ranks"});
}

TEST_CASE(
    "a short sample and a validation file are facts of a checkpoint where they are not usual") {
  const Folder folder;
  using Names = std::vector<std::string>;
  Job job = folder.job();
  const RunFacts usual = facts_of(job);
  CHECK_FALSE(kept_facts(usual).contains("dstrain.data.seq_len"));
  CHECK_FALSE(kept_facts(usual).contains("dstrain.data.val_path"));
  job.model.set_seq_len(4);
  const RunFacts shorter = facts_of(job);
  CHECK(different(usual, shorter) == Names{"dstrain.data.seq_len", "data"});
  CHECK(kept_facts(shorter).at("dstrain.data.seq_len") == "4");
  job = folder.job();
  job.data.val_fraction = 0;
  const RunFacts without = facts_of(job);
  job.data.val_path = job.data.paths[0];
  const RunFacts with = facts_of(job);
  CHECK(different(without, with) == Names{"dstrain.data.val_path"});
  CHECK(kept_facts(with).at("dstrain.data.val_path").starts_with("text, 24 samples, checksum "));
}

TEST_CASE("lists are facts with all of their members") {
  const Folder folder;
  const auto with = [&](std::vector<int64_t> first_layers, std::vector<std::string> exclude) {
    Job job = folder.job();
    if (!first_layers.empty()) job.pipeline.partition = "list";
    job.pipeline.first_layers = std::move(first_layers);
    job.weight_decay_exclude = std::move(exclude);
    return facts_of(job);
  };
  const RunFacts facts = with({0, 2}, {"*.bias", "*ln*"});
  CHECK(different(facts, with({0, 2}, {"*.bias", "*ln*"})).empty());
  CHECK(different(facts, with({0, 3}, {"*.bias", "*ln*"})) ==
        std::vector<std::string>{"pipeline.partition"});
  CHECK(different(facts, with({0, 2}, {"*.bias, *ln*"})) ==
        std::vector<std::string>{"dstrain.weight_decay_exclude"});
}

TEST_CASE(
    "other data of the same vocabulary is other data, other characters are another vocabulary") {
  const Folder folder;
  const RunFacts facts = facts_of(folder.job());
  CHECK(different(facts, facts_of(folder.job())).empty());
  folder.write("bacd ");
  CHECK(different(facts, facts_of(folder.job())) == std::vector<std::string>{"data"});
  folder.write("abcx ");
  CHECK(different(facts, facts_of(folder.job())) == std::vector<std::string>{"vocabulary", "data"});
}

}  // namespace
}  // namespace dstrain
