// A unit of two parameters and padding, whose update rules emit without a plan:
//   blocks.0.weight (4, 2), blocks.0.bias (4), and 4 elements of padding
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/optim/optimizer_rules.h"
#include "runtime/optim/unit_update.h"

namespace dstrain {

// Returns a program with such a unit. Its gradients, its parameters and the optimizer's state are buffers of all of it.
inline Program lone_program(const OptimizerConfig& optimizer) {
  Program program;
  const OptimizerRule& rule = optimizer_rule(optimizer.kind);
  program.parameters = {{.name = "blocks.0.weight", .shape = {4, 2}},
                        {.name = "blocks.0.bias", .shape = {4}, .offset = 8}};
  for (Parameter& p : program.parameters)
    if (rule.takes && rule.takes(optimizer, {p.name, p.shape})) p.form = rule.other_form;
  Unit& unit =
      program.units.emplace_back(Unit{.name = "blocks.0", .parameters = {0, 1}, .elements = 16});
  const auto add = [&](std::string name) {
    return UnitBuffer{program.add_buffer({.name = std::move(name), .shape = {16}})};
  };
  unit.buffers.gradients = add("grads");
  unit.buffers.values = add("params");
  for (const SlotRule& slot : state_slots(optimizer))
    unit.buffers.slots.push_back({std::string(slot.name), add(std::string(slot.name))});
  return program;
}

// The update of the only unit of a program, by the first of `ranks` that own a slice each.
class LoneUpdate final : public UnitUpdate {
 public:
  LoneUpdate(Program& program, const Job& job, Range updated = {0, 16}, int ranks = 1)
      : UnitUpdate(program, program.units[0], job, updated, {0, ranks}, 0) {}

  BufferId part(const UnitBuffer& buffer, Range range) override {
    return buffer.id == kNone ? kNone : program().view(buffer.id, range.begin, range.size());
  }
  RankNumber number_among(RankSet) const override { return {rank(), ranks()}; }
  void emit_gather(RankSet, BufferId mine, BufferId all) override {
    emit(OpKind::all_gather, {}, {mine}, {all});
  }
};

// Returns what the optimizer of a job emits for the unit.
inline Program update_of(const Job& job) {
  Program program = lone_program(job.optimizer);
  LoneUpdate update(program, job);
  const OptimizerRule& rule = optimizer_rule(job.optimizer.kind);
  rule.begin(update);
  if (rule.finish) rule.finish(update);
  return program;
}

}  // namespace dstrain
