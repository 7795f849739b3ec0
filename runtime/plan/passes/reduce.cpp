#include <algorithm>
#include <unordered_map>

#include "runtime/core/error.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

// The instructions that reduce one unit, in order.
class UnitReduction {
 public:
  UnitReduction(Program& program, const Job& job, Place place, const Unit& unit)
      : program_(program), job_(job), place_(place), unit_(unit) {
    gradients_ = program.find("grads:" + unit.name);
  }

  bool wanted() const { return gradients_ != kNone; }

  // With `micro_batch`, gradients of one micro-batch go to a buffer of their own before they are
  // summed.
  BufferId micro_gradients() {
    if (micro_ == kNone)
      micro_ = program_.add_buffer({.name = "micro_grads:" + unit_.name,
                                    .shape = {unit_.elements},
                                    .memory = MemoryClass::communication,
                                    .shared = place_.ranks > 1 && !narrow()});
    return micro_;
  }

  // Before the first write of a micro-batch: padding between parameters must not hold old bytes.
  std::vector<Instruction> before(int32_t group) {
    int64_t used = 0;
    for (int index : unit_.parameters)
      used += program_.parameters[static_cast<size_t>(index)].shape.elements();
    if (job_.reduce != ReduceMode::micro_batch || used == unit_.elements) return {};
    return {{.op = OpKind::zero, .writes = {micro_gradients()}, .group = group}};
  }

  // After the last write.
  std::vector<Instruction> instructions(int32_t group) {
    group_ = group;
    const bool every = job_.reduce == ReduceMode::micro_batch;
    when_ = every ? When::every_micro : When::last_micro;
    const BufferId source = every ? micro_gradients() : gradients_;
    if (place_.ranks == 1) {
      if (narrow()) in_place(OpKind::round_wire, Queue::compute, source);
      if (every) sum_into(gradients_, source, Accumulate::after_first_micro);
    } else if (!narrow()) {
      in_place(OpKind::all_reduce, Queue::comm, source);
      if (every) sum_into(gradients_, source, Accumulate::after_first_micro);
    } else {
      const BufferId wire = program_.add_buffer({.name = "wire:" + unit_.name,
                                                 .shape = {unit_.elements},
                                                 .dtype = job_.wire_dtype,
                                                 .memory = MemoryClass::communication,
                                                 .shared = true});
      add({.op = OpKind::cast, .reads = {source}, .writes = {wire}});
      in_place(OpKind::all_reduce, Queue::comm, wire);
      sum_into(gradients_, wire, every ? Accumulate::after_first_micro : Accumulate::never);
    }
    return std::move(list_);
  }

 private:
  bool narrow() const { return job_.wire_dtype != DType::f32; }

  void add(Instruction op) {
    op.when = when_;
    op.group = group_;
    list_.push_back(std::move(op));
  }
  void in_place(OpKind op, Queue queue, BufferId buffer) {
    add({.op = op,
         .queue = queue,
         .attrs = {.wire = static_cast<uint8_t>(job_.wire_dtype)},
         .reads = {buffer},
         .writes = {buffer}});
  }
  void sum_into(BufferId sum, BufferId source, Accumulate mode) {
    add({.op = OpKind::accumulate, .accumulate = mode, .reads = {source}, .writes = {sum}});
  }

  Program& program_;
  const Job& job_;
  Place place_;
  const Unit& unit_;
  BufferId gradients_ = kNone, micro_ = kNone;
  When when_ = When::last_micro;
  int32_t group_ = 0;
  std::vector<Instruction> list_;
};

}  // namespace

void reduce(Program& program, const Job& job, Place place) {
  std::vector<UnitReduction> units;
  for (const Unit& unit : program.units) units.emplace_back(program, job, place, unit);

  std::unordered_map<BufferId, int> unit_of_gradient;
  for (const Parameter& p : program.parameters)
    if (p.gradient != kNone) unit_of_gradient[p.gradient] = p.unit;
  // The unit whose gradients an instruction writes, or -1.
  const auto unit_of = [&](const Instruction& op) {
    for (BufferId id : op.writes)
      if (const auto it = unit_of_gradient.find(id); it != unit_of_gradient.end())
        return it->second;
    return -1;
  };
  std::vector<int> writes_unit(program.instructions.size());
  std::vector<size_t> first(units.size(), SIZE_MAX), last(units.size(), 0);
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const int unit = writes_unit[i] = unit_of(program.instructions[i]);
    if (unit < 0) continue;
    last[static_cast<size_t>(unit)] = i;
    first[static_cast<size_t>(unit)] = std::min(first[static_cast<size_t>(unit)], i);
  }
  if (job.reduce == ReduceMode::micro_batch) {
    for (size_t i = 0; i < program.instructions.size(); ++i)
      if (writes_unit[i] >= 0 &&
          program.instructions[i].accumulate == Accumulate::after_first_micro)
        program.instructions[i].accumulate = Accumulate::never;
    for (const Parameter& p : program.parameters)
      if (p.gradient != kNone)
        program.at(p.gradient).parent = units[static_cast<size_t>(p.unit)].micro_gradients();
  }

  std::vector<Instruction> list;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const int32_t group = program.instructions[i].group;
    const int unit = writes_unit[i];
    if (unit >= 0 && first[static_cast<size_t>(unit)] == i)
      for (Instruction& op : units[static_cast<size_t>(unit)].before(group))
        list.push_back(std::move(op));
    list.push_back(std::move(program.instructions[i]));
    if (unit < 0 || last[static_cast<size_t>(unit)] != i) continue;
    for (Instruction& op : units[static_cast<size_t>(unit)].instructions(group))
      list.push_back(std::move(op));
  }
  program.instructions = std::move(list);
}

}  // namespace dstrain
