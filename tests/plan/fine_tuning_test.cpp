// Parameter groups and adapters: what plans have of them.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

Job tuned_job(int stage, FineTuning tuning) {
  Job job = sharded_job(stage, 2);
  job.model.set_fine_tuning(std::move(tuning));
  return job;
}

}  // namespace

TEST_CASE("parameters of a frozen group have neither gradients nor optimizer state") {
  for (const int stage : {0, 1, 2, 3}) {
    const Program program =
        plan_of(tuned_job(stage, {.groups = {{.match = {"blocks.*.mlp.*"}, .trainable = false}}}))
            .train.program;
    int64_t trained = 0;
    for (const Unit& unit : program.trained_units()) trained += unit.elements;
    for (const Parameter& p : program.parameters) {
      CHECK(p.frozen == (p.name.find(".mlp.") != std::string::npos));
      CHECK((p.gradient == kNone) == p.frozen);
    }
    CHECK(persistent_bytes(program, MemoryClass::optimizer) == 2 * 4 * trained / (stage ? 2 : 1));
    CHECK(persistent_bytes(program, MemoryClass::gradients) == 4 * trained / (stage >= 2 ? 2 : 1));
  }
}

TEST_CASE("a norm may be frozen in part: the other gradient goes where nothing reads it") {
  Job job = tuned_job(0, {.groups = {{.match = {"*.bias"}}, {.match = {"*"}, .trainable = false}}});
  const Plan plan = plan_of(job).train;
  const Program& program = plan.program;
  int64_t norms = 0;
  for (const Instruction& op : program.instructions) {
    const bool joined = op.op == OpKind::layer_norm_grad;
    if (!joined && op.op != OpKind::layer_norm_weight_grad) continue;
    ++norms;
    const Buffer& unread = program.at(op.writes[joined ? 1 : 0]);
    CHECK(unread.name.starts_with("unread_grad:"));
    CHECK(unread.lifetime == Lifetime::step);
    for (const Instruction& other : program.instructions)
      CHECK(std::ranges::find(other.reads, op.writes[joined ? 1 : 0]) == other.reads.end());
  }
  CHECK(norms == 2 * 4 + 1);
}

TEST_CASE("runs of parameters with the same settings are updated together") {
  Job job = tuned_job(0, {.groups = {{.match = {"*.attn.*"}, .lr_scale = 0.5, .weight_decay = 0.25},
                                     {.match = {"*.bias"}, .lr_scale = 2}}});
  job.optimizer.weight_decay = 0.125;
  job.weight_decay_exclude = {"*.bias", "*.attn.*"};
  const Program program = plan_of(job).train.program;
  std::map<BufferId, int64_t> updated;
  std::set<std::pair<float, float>> settings;
  for (const Instruction& op : program.instructions) {
    if (op.op != OpKind::adam) continue;
    updated[program.root(op.writes[0])] += program.at(op.writes[0]).shape.elements();
    const auto attrs = attrs_as<AdamAttrs>(op.attrs);
    settings.insert({attrs.lr_scale, attrs.weight_decay});
  }
  // A group's own weight decay comes before the list of patterns without one.
  CHECK(settings == std::set<std::pair<float, float>>{{0.5f, 0.25f}, {1.0f, 0.125f}, {2.0f, 0.0f}});
  CHECK(updated.size() == program.units.size());
  for (const auto& [root, elements] : updated) CHECK(elements == program.at(root).shape.elements());
}

TEST_CASE("every optimizer that adds gradients scales the rate of a group") {
  for (const OptimizerKind kind : {OptimizerKind::sgd, OptimizerKind::adagrad, OptimizerKind::lion,
                                   OptimizerKind::lamb, OptimizerKind::muon}) {
    Job job = tuned_job(0, {.groups = {{.match = {"*"}, .lr_scale = 0.5}}});
    job.optimizer.kind = kind;
    int64_t scaled = 0;
    for (const Instruction& op : plan_of(job).train.program.instructions) {
      std::visit(
          [&scaled]<class Attrs>(const Attrs& attrs) {
            if constexpr (requires { attrs.lr_scale; }) {
              ++scaled;
              CHECK(attrs.lr_scale == 0.5f);
            }
          },
          op.attrs);
    }
    CHECK(scaled > 0);
  }
}

TEST_CASE("a base in blocks is bytes of whole groups, of which each rank owns some at stage 3") {
  for (const BlockFormat format : {BlockFormat::int8, BlockFormat::nf4})
    for (const int stage : {0, 3}) {
      Job job = tuned_job(
          stage, {.groups = {}, .lora = LoraConfig{.r = 2, .all_linear = true, .base = format}});
      job.dtype = job.wire_dtype = DType::bf16;
      const Program program = plan_of(job).train.program;
      int64_t packed = 0, bytes = 0;
      for (const Unit& unit : program.units) {
        if (unit.blocks == BlockFormat::none) continue;
        ++packed;
        CHECK(unit.frozen);
        CHECK(unit.blocks == format);
        CHECK(unit.elements % (group_bytes(format) * 2) == 0);
        const Buffer& values = program.at(program.find("params:" + unit.name));
        CHECK(values.dtype == DType::u8);
        CHECK(values.bytes() == unit.elements / (stage == 3 ? 2 : 1));
        bytes += unit.elements;
        for (const int index : unit.parameters) {
          const Parameter& p = program.parameters[static_cast<size_t>(index)];
          CHECK(p.offset % group_bytes(format) == 0);
          CHECK(program.at(p.value).bytes() == packed_bytes(format, p.shape.elements()));
        }
      }
      CHECK(packed == 4);  // blocks
      // A block's products have 12 x 32 x 32 weights, of 8.5 or 4.5 bits each.
      const double bits = format == BlockFormat::int8 ? 8.5 : 4.5;
      CHECK(static_cast<double>(bytes) == 4 * 12 * 1024 * bits / 8);
    }
}

TEST_CASE("what is unpacked of blocks is not kept for the backward pass") {
  const Job job = tuned_job(
      0, {.groups = {}, .lora = LoraConfig{.r = 2, .all_linear = true, .base = BlockFormat::nf4}});
  const Plan plan = plan_of(job).train;
  const Program& program = plan.program;
  size_t forward = 0, again = 0;
  for (const Instruction& op : program.instructions) {
    if (op.op != OpKind::unpack_weight) continue;
    (op.phase == Phase::forward ? forward : again) += 1;
    for (const Instruction& reader : program.instructions)
      if (std::ranges::find(reader.reads, op.writes[0]) != reader.reads.end())
        CHECK(reader.phase == op.phase);
  }
  // A buffer of the backward pass says of which value it has a copy.
  for (const Instruction& op : program.instructions) {
    if (op.op != OpKind::unpack_weight || op.phase == Phase::forward) continue;
    const BufferId value = program.at(op.writes[0]).copy_of;
    REQUIRE(value != kNone);
    CHECK(program.at(op.writes[0]).name == "again:" + program.at(value).name);
  }
  CHECK(forward == 4 * 4);
  // All but the first block's queries, keys and values, behind which nothing is trained.
  CHECK(again == 4 * 4 - 1);
}

TEST_CASE("with adapters the base has no gradients and no state, in 16 bits no master") {
  for (const int stage : {0, 3}) {
    Job job = tuned_job(stage, {.groups = {}, .lora = LoraConfig{.r = 2, .all_linear = true}});
    job.dtype = job.wire_dtype = DType::bf16;
    const Plan plan = plan_of(job).train;
    int64_t trained = 0, frozen = 0;
    for (const Unit& unit : plan.program.units) (unit.frozen ? frozen : trained) += unit.elements;
    const int64_t slices = stage == 3 ? 2 : 1;
    CHECK(frozen > 8 * trained);
    CHECK(persistent_bytes(plan.program, MemoryClass::optimizer) == 12 * trained / slices);
    CHECK(persistent_bytes(plan.program, MemoryClass::gradients) == 4 * trained / slices);
    CHECK(persistent_bytes(plan.program, MemoryClass::parameters) ==
          2 * (trained + frozen) / slices);
    CHECK(count_ops(plan, OpKind::linear_weight_grad) == 2 * 4 * 4);
    CHECK(count_ops(plan, OpKind::embed_token_grad) == 0);
  }
}

TEST_CASE("a matrix of an adapter says which of the two it is, and which weight it adapts") {
  const Program program =
      plan_of(tuned_job(0, {.groups = {}, .lora = LoraConfig{.r = 2, .all_linear = true}}))
          .train.program;
  std::map<AdapterMatrix, int> matrices;
  for (const Parameter& p : program.parameters) {
    ++matrices[p.adapter];
    CHECK((p.adapter == AdapterMatrix::none) == p.adapts.empty());
    if (p.adapts.empty()) continue;
    const auto base = std::ranges::find(program.parameters, p.adapts, &Parameter::name);
    REQUIRE(base != program.parameters.end());
    CHECK(base->frozen);
    // B makes the columns that the base makes, A reads those that it reads.
    const bool is_b = p.adapter == AdapterMatrix::b;
    CHECK(p.shape[is_b ? 0 : 1] == base->shape[is_b ? 0 : 1]);
  }
  CHECK(matrices[AdapterMatrix::a] == 4 * 4);
  CHECK(matrices[AdapterMatrix::b] == 4 * 4);
}
