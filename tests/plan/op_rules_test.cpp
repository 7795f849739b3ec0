// What rules say of ops, against what the instructions of plans do.
#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "tests/plan/plans.h"

namespace dstrain {
namespace {

// Returns the units whose update has an instruction of which `is` holds.
template <class Is>
std::set<std::string> units_with(const Plan& plan, const Is& is) {
  std::set<std::string> units;
  for (const Instruction& op : plan.program.instructions)
    if (op.when == When::step_end && is(rule_of(op.op))) units.insert(group_of(plan, op));
  return units;
}

TEST_CASE("each optimizer clips every unit's gradient, and moves the weights of every unit") {
  for (size_t i = 0; i < kOptimizerKinds; ++i) {
    Job job = sharded_job(0);
    job.optimizer.kind = static_cast<OptimizerKind>(i);
    job.optimizer.freeze_step = 5;
    const RankPlan plans = plan_of(job);
    for (const StepKind kind : step_kinds(job)) {
      CAPTURE(i, name_of(kind));
      const Plan& plan = plans.training(kind);
      const size_t units = plan.program.units.size();
      CHECK(units_with(plan, [](const OpRule& r) { return r.clips_gradient; }).size() == units);
      // Local steps leave the weights of the unit to the step that ends them.
      const auto moved = units_with(plan, [](const OpRule& r) { return r.moves_weights; });
      CHECK(moved.size() == (kind == StepKind::local ? 0 : units));
    }
  }
}

TEST_CASE("what writes the gradient of a parameter sums its rows, in norms that are joined too") {
  for (const bool joins : {false, true}) {
    const PlanInputs inputs{std::make_shared<FakeLibrary>(0, false, false, joins), 1};
    const Plan plan = make_rank_plan(small_job(), place_of(small_job(), 0), inputs).train;
    std::set<BufferId> written;
    for (const Instruction& op : plan.program.instructions) {
      if (op.when == When::step_end || !has_kernel(op.op)) continue;
      for (size_t i = 0; i < op.writes.size(); ++i) {
        const auto of =
            std::ranges::find(plan.program.parameters, op.writes[i], &Parameter::gradient);
        if (op.writes[i] == kNone || of == plan.program.parameters.end()) continue;
        CAPTURE(name_of(op.op), of->name);
        CHECK(rule_of(op.op).gradient_terms == GradientTerms::rows);
        CHECK(rule_of(op.op).sums.contains(i));
        written.insert(op.writes[i]);
      }
    }
    CHECK(written.size() == plan.program.parameters.size());
  }
}

// Checks that the operands of an instruction which name an axis have as many indices of it.
void check_sizes(const Program& program, const Instruction& op) {
  const OpAxes axes = axes_of(program, op);
  std::map<OperandAxis, std::set<int64_t>> sizes;
  const auto add = [&](BufferId id, const OperandAxes& operand) {
    if (id == kNone || operand.count == 0 || operand.count > 2) return;
    const Shape& shape = program.at(id).shape;
    // Keys may have fewer heads, and sums for each head fewer columns.
    if (operand.last() != OperandAxis::head && (operand.count == 2 || shape.rank == 1))
      sizes[operand.last()].insert(shape[-1] / operand.sections);
    if (operand.count == 2) sizes[operand.axes[0]].insert(shape.elements() / shape[-1]);
  };
  for (size_t i = 0; i < op.reads.size(); ++i) add(op.reads[i], axes.read(i));
  for (size_t i = 0; i < op.writes.size(); ++i) add(op.writes[i], axes.write(i));
  for (const auto& [axis, of_operands] : sizes) {
    CAPTURE(name_of(op.op), program.group_name(op), static_cast<int>(axis));
    CHECK(of_operands.size() == 1);
  }
}

TEST_CASE("operands that name an axis have as many indices of it, in parts and pieces too") {
  for (const int tensor : {1, 2})
    for (const int64_t chunks : {1, 2}) {
      Job job = small_job();
      job.model =
          GptLite{.n_layer = 2, .n_embd = 16, .n_head = 4, .block_size = 8, .vocab_size = 11};
      job.tensor_ranks = tensor;
      job.ranks = tensor;
      job.loss_chunks = job.mlp_chunks = chunks;
      const Plan plan = make_rank_plan(job, place_of(job, 0), fake_inputs()).train;
      size_t seen = 0;
      for (const Instruction& op : plan.program.instructions) {
        if (op.when != When::every_micro || op.op == OpKind::cast) continue;
        if (axes_of(plan.program, op).any()) ++seen;
        check_sizes(plan.program, op);
      }
      CHECK(seen > 20);
    }
}

}  // namespace
}  // namespace dstrain
