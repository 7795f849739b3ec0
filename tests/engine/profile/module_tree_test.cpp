// The work of forward passes by modules, against formulas, and of the same model at every stage and in pipelines.
#include "runtime/engine/profile/module_tree.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "launcher/implementations.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/plan.h"
#include "tests/support/models.h"

namespace dstrain {
namespace {

// Sizes of the model: blocks, channels, heads, tokens, vocabulary, samples of a micro-batch.
constexpr int64_t kBlocks = 3, kWidth = 16, kHeads = 2, kTokens = 8, kWords = 11, kSamples = 2;
constexpr double kRows = kSamples * kTokens;

Job profiled_job(bool tied = false, int64_t samples = kSamples) {
  Job job;
  job.model = GptLite{.n_layer = kBlocks,
                      .n_embd = kWidth,
                      .n_head = kHeads,
                      .block_size = kTokens,
                      .dropout = 0.1,
                      .tied_head = tied,
                      .vocab_size = kWords};
  job.batch = {3 * samples, samples, 3};
  return job;
}

Job on_ranks(Job job, int ranks, int stages) {
  job.ranks = ranks;
  job.pipeline.stages = stages;
  job.batch.train_batch *= ranks / stages;
  return job;
}

// Returns the tree of a rank's part, in which every instruction of the forward pass takes a second.
ModuleNode tree_of(const Job& job, int rank = 0) {
  const Plan plan = make_rank_plan(job, place_of(job, rank),
                                   {make_planning_library(implementations(), DeviceKind::cpu), 1})
                        .train;
  const std::vector<double> seconds(plan.program.instructions.size(), 1);
  return module_tree("lite", plan.program, forward_work(plan.program), seconds, 0.5);
}

const ModuleNode& child_of(const ModuleNode& node, const std::string& name) {
  const auto found = std::ranges::find(node.children, name, &ModuleNode::name);
  INFO(node.name << " has no module " << name);
  REQUIRE(found != node.children.end());
  return *found;
}

std::vector<std::string> names_in(const ModuleNode& node) {
  std::vector<std::string> names;
  for (const ModuleNode& child : node.children) names.push_back(child.name);
  return names;
}

constexpr double kAttentionMacs = 2 * kRows * kWidth * kTokens;
constexpr double kBlockMacs = kRows * kWidth * (3 + 1 + 4 + 4) * kWidth + kAttentionMacs;
constexpr double kModelMacs = kBlocks * kBlockMacs + kRows * kWidth * kWords;
// Besides: 5 of each element of a layer norm, 1 of each of an activation.
constexpr double kModelFlops =
    2 * kModelMacs + (2 * kBlocks + 1) * 5 * kRows * kWidth + kBlocks * kRows * 4 * kWidth;

TEST_CASE("work: MACs and FLOPs of a model are those of the formulas") {
  const ModuleNode tree = tree_of(profiled_job());
  CHECK(tree.macs == kModelMacs);
  CHECK(tree.flops == kModelFlops);
}

TEST_CASE("work: attention counts all pairs of queries and keys, twice what is computed") {
  const Job job = profiled_job();
  const Plan plan = make_rank_plan(job, place_of(job, 0),
                                   {make_planning_library(implementations(), DeviceKind::cpu), 1})
                        .train;
  const std::vector<ForwardWork> work = forward_work(plan.program);
  int found = 0;
  for (size_t i = 0; i < work.size(); ++i) {
    const Instruction& op = plan.program.instructions[i];
    if (op.op != OpKind::attention || !is_forward(op)) continue;
    ++found;
    CHECK(work[i].flops == 2 * cost_of(plan.program, op).flops);
    CHECK(work[i].macs == kAttentionMacs);
    CHECK(work[i].module == "blocks." + std::to_string(found - 1) + ".attn");
  }
  CHECK(found == kBlocks);
}

TEST_CASE("tree: modules are the names of parameters, and what has none belongs around them") {
  const ModuleNode tree = tree_of(profiled_job());
  CHECK(tree.name == "lite");
  CHECK(names_in(tree) == std::vector<std::string>{"token_embedding_table",
                                                   "position_embedding_table", "blocks", "ln",
                                                   "lm_head"});
  const ModuleNode& blocks = child_of(tree, "blocks");
  CHECK(blocks.kind == "ModuleList");
  CHECK(names_in(blocks) == std::vector<std::string>{"0", "1", "2"});
  const ModuleNode& block = child_of(blocks, "1");
  CHECK(block.kind == "Module");
  CHECK(names_in(block) == std::vector<std::string>{"ln1", "attn", "ln2", "mlp"});
  CHECK(block.macs == kBlockMacs);
  const ModuleNode& attention = child_of(block, "attn");
  CHECK(attention.macs - child_of(attention, "qkv").macs - child_of(attention, "out_proj").macs ==
        kAttentionMacs);
  CHECK(child_of(attention, "qkv").kind == "Linear");
  CHECK(child_of(attention, "qkv").macs == kRows * kWidth * 3 * kWidth);
  CHECK(child_of(block, "ln1").kind == "LayerNorm");
  CHECK(child_of(tree, "token_embedding_table").kind == "Embedding");
  CHECK(child_of(tree, "token_embedding_table").flops == 0);
  CHECK(child_of(tree, "lm_head").macs == kRows * kWidth * kWords);
  // The additions of a block are its own.
  double inside = 0;
  for (const ModuleNode& child : block.children) inside += child.seconds;
  CHECK(block.seconds > inside);
}

TEST_CASE("tree: a module has the parameters and the time of those in it") {
  const ModuleNode tree = tree_of(profiled_job());
  const int64_t block = 3 * kWidth * kWidth + kWidth * kWidth + kWidth + 8 * kWidth * kWidth +
                        5 * kWidth + 4 * kWidth;
  CHECK(child_of(child_of(tree, "blocks"), "0").parameters == block);
  CHECK(tree.parameters == kBlocks * block + 2 * kWords * kWidth + kTokens * kWidth + 2 * kWidth);
  double inside = 0;
  for (const ModuleNode& child : tree.children) inside += child.seconds;
  CHECK(inside > 0);
  CHECK(tree.seconds > inside + 0.5);  // the loss, and what belongs to no instruction
}

TEST_CASE("tree: a tied head has the MACs, and the parameters only beside their owner") {
  const ModuleNode tied = tree_of(profiled_job(true)), own = tree_of(profiled_job());
  CHECK(tied.macs == own.macs);
  CHECK(tied.flops == own.flops);
  CHECK(tied.parameters == own.parameters - kWords * kWidth);
  const ModuleNode& head = child_of(tied, "head");
  CHECK(head.kind == "Linear");
  CHECK(head.parameters == 0);
  CHECK(head.tied == kWords * kWidth);
  CHECK(head.macs == kRows * kWidth * kWords);
}

TEST_CASE("work: what the plan does to memory changes no MAC and no FLOP of a micro-batch") {
  constexpr int64_t samples = 128;  // enough rows for a loss in pieces
  Job job = on_ranks(profiled_job(false, samples), 2, 1);
  job.zero_stage = GENERATE(0, 1, 2, 3);
  job.reduce = usual_reduce(job.zero_stage);
  job.recompute.mode = GENERATE(RecomputeMode::none, RecomputeMode::interval);
  job.recompute.interval = 1;
  job.loss_chunks = GENERATE(1, 4);
  CAPTURE(job.zero_stage, job.loss_chunks);
  const ModuleNode tree = tree_of(job, 1), alone = tree_of(profiled_job(false, samples));
  CHECK(tree.macs == alone.macs);
  CHECK(tree.flops == alone.flops);
  CHECK(tree.parameters == alone.parameters);
  CHECK(names_in(tree) == names_in(alone));
}

TEST_CASE("work: the stages of a pipeline have the model's work and parameters between them") {
  const bool tied = GENERATE(false, true);
  const Job job = on_ranks(profiled_job(tied), 2, 2);
  const ModuleNode first = tree_of(job, 0), last = tree_of(job, 1),
                   alone = tree_of(profiled_job(tied));
  CHECK(first.macs + last.macs == alone.macs);
  CHECK(first.flops + last.flops == alone.flops);
  CHECK(first.parameters + last.parameters == alone.parameters);
  CHECK(first.macs > 0);
  CHECK(last.macs > 0);
  if (tied) {
    CHECK(child_of(last, "head").macs == kRows * kWidth * kWords);
    CHECK(child_of(last, "head").tied == kWords * kWidth);
  }
}

TEST_CASE("work: ranks that divide layers and samples have the model's work between them") {
  const bool tied = GENERATE(false, true);
  Job job = profiled_job(tied);
  job.sequence_ranks = GENERATE(1, 2);
  job.tensor_ranks = job.sequence_ranks == 1 ? 2 : GENERATE(1, 2);
  if (job.sequence_ranks * job.tensor_ranks == 4) job.model.set("n_head", 4);
  job.ranks = job.sequence_ranks * job.tensor_ranks;
  job.overlap_tensor = GENERATE(false, true);
  CAPTURE(tied, job.sequence_ranks, job.tensor_ranks, job.overlap_tensor);
  const auto projection = [](const ModuleNode& tree) {
    return child_of(child_of(child_of(child_of(tree, "blocks"), "0"), "attn"), "out_proj").macs;
  };
  const ModuleNode alone = tree_of(profiled_job(tied));
  double macs = 0, flops = 0, projections = 0;
  int64_t classes = 0, weights = 0;
  for (int rank = 0; rank < job.ranks; ++rank) {
    const ModuleNode tree = tree_of(job, rank);
    macs += tree.macs;
    flops += tree.flops;
    projections += projection(tree);
    const ModuleNode& head = child_of(tree, tied ? "head" : "lm_head");
    classes += tied ? head.tied : head.parameters;
    const ModuleNode& block = child_of(child_of(tree, "blocks"), "0");
    weights += child_of(child_of(block, "attn"), "qkv").parameters;
    CHECK(child_of(tree, "ln").parameters == child_of(alone, "ln").parameters);
    CHECK(names_in(tree) == names_in(alone));
  }
  CHECK(macs == alone.macs);
  CHECK(flops == alone.flops);
  CHECK(projections == projection(alone));
  // 11 classes do not divide evenly: the parts are filled up with rows of zeros, which count nowhere.
  CHECK(classes == job.sequence_ranks * kWords * kWidth);
  CHECK(weights == job.sequence_ranks * 3 * kWidth * kWidth);
}

}  // namespace
}  // namespace dstrain
