#include <catch2/catch.hpp>
#include <map>
#include <set>

#include "runtime/plan/residency.h"
#include "tests/plan/plans.h"
#include "tests/support/models.h"

using namespace dstrain;

TEST_CASE("every element of a unit is updated exactly once, decayed or not") {
  Job job = small_job();
  job.optimizer.weight_decay = 0.1;
  job.weight_decay_exclude = {"*.bias", "*ln*"};
  const Plan plan = train_plan(job);
  std::map<BufferId, int64_t> updated;
  std::set<float> decays;
  for (const Instruction& op : plan.program.instructions) {
    if (op.op != OpKind::adam) continue;
    updated[plan.program.root(op.writes[0])] += plan.program.at(op.writes[0]).shape.elements();
    decays.insert(attrs_as<AdamAttrs>(op.attrs).weight_decay);
  }
  CHECK(updated.size() == plan.program.units.size());
  for (const auto& [root, elements] : updated)
    CHECK(elements == plan.program.at(root).shape.elements());
  CHECK(decays == std::set<float>{0.0f, 0.1f});
}

TEST_CASE("where the optimizer is sharded a rank updates its slice, and slices are gathered") {
  for (const int stage : {0, 1, 2, 3}) {
    const Job job = sharded_job(stage);
    const Plan plan = plan_of(job).train;
    std::map<std::string, int64_t> updated;
    size_t gathers = 0;
    for (const Instruction& op : plan.program.instructions) {
      if (op.when != When::step_end) continue;
      if (op.op == OpKind::adam)
        updated[group_of(plan, op)] += plan.program.at(op.writes[0]).shape.elements();
      gathers += op.op == OpKind::all_gather;
    }
    for (const Unit& unit : plan.program.units)
      CHECK(updated[unit.name] == unit.elements / (stage >= 1 ? job.ranks : 1));
    // At stage 3 parameters are gathered where they are used.
    CHECK(gathers == (stage == 1 || stage == 2 ? plan.program.units.size() : 0));
  }
}

TEST_CASE("16-bit parameters that are the masters need no other copy, at any stage") {
  for (const int stage : {0, 1, 2, 3})
    for (const DType moments : {DType::f32, DType::bf16}) {
      Job job = sharded_job(stage);
      job.dtype = job.wire_dtype = job.grad_dtype = job.master_dtype = DType::bf16;
      job.state_dtype = moments;
      const Plan plan = plan_of(job).train;
      const Program& program = plan.program;
      for (const Unit& unit : program.units) {
        CHECK(program.find("master:" + unit.name) == kNone);
        const int64_t n = unit.elements / (stage >= 1 ? job.ranks : 1);
        const Buffer& m = program.at(program.find("exp_avg:" + unit.name));
        CHECK(m.dtype == moments);
        CHECK(m.shape.elements() == n);
      }
      for (const Instruction& op : program.instructions) {
        if (op.op != OpKind::adam) continue;
        CHECK(program.at(program.root(op.writes[0])).memory == MemoryClass::parameters);
        CHECK(op.writes[3] == kNone);
      }
    }
}

TEST_CASE(
    "state in 8 bits: no slice cuts a block, and tables and small tensors have state in f32") {
  for (const int stage : {0, 1, 2, 3})
    for (const int ranks : {1, 3, 4}) {
      CAPTURE(stage, ranks);
      Job job = sharded_job(stage, ranks);
      job.optimizer.kind = OptimizerKind::adam_8bit;
      job.optimizer.min_8bit_size = 200;  // the table of positions has 256 elements
      const Plan plan = make_rank_plan(job, place_of(job, ranks - 1), fake_inputs()).train;
      const Program& program = plan.program;
      const auto elements = [&](BufferId id) { return program.at(id).shape.elements(); };
      std::map<std::string, int64_t> in_8_bits, wide;
      for (const Instruction& op : program.instructions) {
        if (op.op == OpKind::adam) wide[group_of(plan, op)] += elements(op.writes[0]);
        if (op.op != OpKind::adam_8bit) continue;
        const int64_t n = elements(op.writes[0]);
        CHECK(n % 256 == 0);
        in_8_bits[group_of(plan, op)] += n;
        for (const size_t codes : {1, 3}) {
          CHECK(elements(op.writes[codes]) == n);
          CHECK(elements(op.writes[codes + 1]) == n / 256);
        }
      }
      for (const Unit& unit : program.units) {
        CAPTURE(unit.name);
        const Range updated = stage == 0 ? Range{0, unit.elements} : owned_slice(unit, plan.place);
        CHECK(updated.begin % 256 == 0);
        CHECK(in_8_bits[unit.name] + wide[unit.name] == updated.size());
        int64_t packed = 0;
        for (const int index : unit.parameters) {
          const Parameter& p = program.parameters[static_cast<size_t>(index)];
          CHECK(p.offset % 256 == 0);
          const bool table = p.name.find("embedding") != std::string::npos;
          CHECK((p.form == UpdateForm::blocks) == (!table && p.shape.elements() >= 200));
          if (p.form == UpdateForm::blocks)
            packed += std::max<int64_t>(0, common(updated, elements_of(p)).size());
        }
        CHECK(in_8_bits[unit.name] >= packed);
        const UnitBuffers& buffers = unit.buffers;
        CHECK(elements(buffers.slot("exp_avg")->values.id) == wide[unit.name]);
        CHECK(elements(buffers.slot("exp_avg_codes")->values.id) == in_8_bits[unit.name]);
        CHECK(elements(buffers.slot("exp_avg_sq_absmax")->values.id) == in_8_bits[unit.name] / 256);
      }
    }
}

TEST_CASE("Lamb moves every element of a parameter once, by norms of the slices that ranks own") {
  for (const int stage : {0, 1, 2, 3}) {
    Job job = sharded_job(stage);
    job.optimizer.kind = OptimizerKind::lamb;
    const Plan plan = plan_of(job).train;
    const Program& program = plan.program;
    std::map<std::string, int64_t> moved, summed;
    std::map<std::string, int> gathers;
    for (const Instruction& op : program.instructions) {
      if (op.when != When::step_end) continue;
      const std::string unit = group_of(plan, op);
      if (op.op == OpKind::lamb) moved[unit] += program.at(op.writes[0]).shape.elements();
      if (op.op == OpKind::sum_squares && unit != "step")
        summed[unit] += program.at(op.reads[0]).shape.elements();
      if (op.op == OpKind::all_gather)
        gathers[unit] += program.at(op.writes[0]).dtype == DType::f64;
    }
    for (const Unit& unit : program.units) {
      int64_t elements = 0, owned = 0;
      const Range slice = owned_slice(unit, plan.place);
      for (const int index : unit.parameters) {
        const Parameter& p = program.parameters[static_cast<size_t>(index)];
        const int64_t end = p.offset + p.shape.elements();
        elements += p.shape.elements();
        owned += std::max<int64_t>(0, std::min(end, slice.end) - std::max(p.offset, slice.begin));
      }
      CHECK(moved[unit.name] == (stage == 0 ? elements : owned));
      CHECK(summed[unit.name] == 2 * owned);
      CHECK(gathers[unit.name] == 1);
    }
  }
}

TEST_CASE(
    "Muon: a rank transforms the matrices of which it updates a part, Adam updates the rest") {
  for (const int stage : {0, 1, 2, 3})
    for (const DType dtype : {DType::f32, DType::bf16}) {
      Job job = sharded_job(stage);
      job.dtype = job.wire_dtype = dtype;
      job.optimizer.kind = OptimizerKind::muon;
      const Plan plan = plan_of(job).train;
      const Program& program = plan.program;
      std::map<std::string, int64_t> moved, directions, by_adam, gathers;
      std::map<std::string, std::set<std::string>> transformed;
      for (const Instruction& op : program.instructions) {
        if (op.when != When::step_end) continue;
        const std::string unit = group_of(plan, op);
        const int64_t n = op.writes.empty() ? 0 : program.at(op.writes[0]).shape.elements();
        if (op.op == OpKind::muon) moved[unit] += n;
        if (op.op == OpKind::muon_momentum) directions[unit] += n;
        if (op.op == OpKind::adam) by_adam[unit] += n;
        if (op.op == OpKind::orthogonalize)
          CHECK(transformed[unit].insert(program.at(op.writes[0]).name).second);
        if (op.op == OpKind::all_gather && op.writes[0] == program.find("direction:" + unit))
          ++gathers[unit];
      }
      for (const Unit& unit : program.units) {
        const Range updated = stage == 0 ? Range{0, unit.elements} : owned_slice(unit, plan.place);
        int64_t matrices = 0, others = 0;
        size_t parts = 0;
        bool any = false;
        for (const int index : unit.parameters) {
          const Parameter& p = program.parameters[static_cast<size_t>(index)];
          const int64_t n = std::max<int64_t>(0, common(updated, elements_of(p)).size());
          (p.form == UpdateForm::matrix ? matrices : others) += n;
          parts += p.form == UpdateForm::matrix && n > 0;
          any = any || p.form == UpdateForm::matrix;
        }
        CHECK(any == (unit.name.find("block") != std::string::npos));
        CHECK(moved[unit.name] == matrices);
        CHECK(directions[unit.name] == matrices);
        CHECK(by_adam[unit.name] >= others);  // with padding
        CHECK(transformed[unit.name].size() == parts);
        CHECK(gathers[unit.name] == (any && stage > 0));
        // Matrices have one state, the others two.
        CHECK(program.at(program.find("exp_avg:" + unit.name)).shape.elements() == updated.size());
        CHECK(program.at(program.find("exp_avg_sq:" + unit.name)).shape.elements() ==
              by_adam[unit.name]);
      }
    }
}

TEST_CASE("Muon's directions travel while those of the layer before are transformed") {
  Job job = sharded_job(2);
  job.optimizer.kind = OptimizerKind::muon;
  for (const bool overlap : {false, true}) {
    job.overlap_comm = overlap;
    const Plan plan = plan_of(job).train;
    size_t gathers = 0, largest = 0;
    for (const size_t i : issues_of(plan, OpKind::all_gather)) {
      const Instruction& op = op_at(plan, i);
      if (plan.program.at(op.writes[0]).name.rfind("direction:", 0) != 0) continue;
      ++gathers;
      // The transforms of other layers between the gather and the first use of what it brings.
      size_t between = 0;
      for (size_t j = i + 1; j < plan.order.size(); ++j) {
        const Instruction& next = op_at(plan, j);
        if (next.op != OpKind::orthogonalize) continue;
        if (next.group == op.group) break;
        ++between;
      }
      largest = std::max(largest, between);
    }
    CHECK(gathers == 4);
    CHECK((largest > 0) == overlap);
  }
}

TEST_CASE("Lamb's sums are gathered by a rank too that owns nothing but padding") {
  Job job = sharded_job(2, 3);
  job.optimizer.kind = OptimizerKind::lamb;
  job.model = BenchmarkModel{.n_layer = 2, .in_size = 1, .hidden_size = 1, .out_size = 2};
  for (int rank = 0; rank < 3; ++rank) {
    const Plan plan = plan_of(job, rank).train;
    int64_t sums = 0, steps = 0;
    for (const Instruction& op : plan.program.instructions) {
      sums += op.op == OpKind::all_gather && plan.program.at(op.writes[0]).dtype == DType::f64;
      steps += op.op == OpKind::lamb && group_of(plan, op) == plan.program.units.front().name;
    }
    CHECK(sums == static_cast<int64_t>(plan.program.units.size()));
    CHECK((steps == 0) == (rank == 2));
  }
}
