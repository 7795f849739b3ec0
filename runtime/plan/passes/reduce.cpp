#include <algorithm>
#include <deque>
#include <unordered_map>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

bool each_micro(const Job& job) {
  return job.reduce == ReduceMode::micro_batch;
}

// Whether gradients of one micro-batch go to an f32 buffer of their own before they are summed: ranks
// add them first, or they are rounded on their way to where they are held.
bool apart(const Job& job) {
  return each_micro(job) || is_16bit(job.grad_dtype);
}

// The instructions that reduce one unit, in order.
class UnitReduction {
 public:
  UnitReduction(Program& program, const Job& job, Place place, const Residency& residency,
                const Unit& unit)
      : program_(program), job_(job), place_(place), residency_(residency), unit_(unit) {
    gradients_ = program.find("grads:" + unit.name);
  }

  // Where gradients of one micro-batch stand `apart`.
  BufferId micro_gradients() {
    const bool every = each_micro(job_);
    if (micro_ == kNone)
      micro_ = program_.add_buffer(
          {.name = "micro_grads:" + unit_.name,
           .shape = {unit_.elements},
           .memory = every ? MemoryClass::communication : MemoryClass::workspace,
           .shared = every && place_.ranks > 1 && !narrow()});
    return micro_;
  }

  // Before the first write of a micro-batch: padding between parameters must not hold old bytes.
  std::vector<Instruction> before(int32_t group) {
    std::vector<Instruction> list;
    if (!apart(job_)) return list;
    int64_t at = 0;
    const auto zero_until = [&](int64_t end) {
      if (at < end)
        list.push_back({.op = OpKind::zero,
                        .writes = {program_.view(micro_gradients(), at, end - at)},
                        .group = group});
    };
    for (int index : unit_.parameters) {
      const Parameter& p = program_.parameters[static_cast<size_t>(index)];
      if (p.gradient == kNone) continue;
      zero_until(p.offset);
      at = p.offset + p.shape.elements();
    }
    zero_until(unit_.elements);
    return list;
  }

  // After the last write: sends this rank's contribution.
  std::vector<Instruction> send(int32_t group) {
    group_ = group;
    when_ = When::every_micro;
    const bool every = each_micro(job_);
    if (!every && apart(job_))
      add({.op = OpKind::accumulate,
           .accumulate = Accumulate::after_first_micro,
           .reads = {micro_gradients()},
           .writes = {gradients_}});
    if (!every) when_ = When::last_micro;
    travelling_ = every ? micro_gradients() : gradients_;
    const DType held = program_.at(travelling_).dtype;
    const bool alone = place_.ranks == 1;
    if (alone && held == DType::f32) {
      if (narrow()) in_place(OpKind::round_wire, WireAttrs{job_.wire_dtype}, travelling_);
      return std::exchange(list_, {});
    }
    if (held != job_.wire_dtype && (!alone || narrow())) {
      const BufferId wire = program_.add_buffer({.name = "wire:" + unit_.name,
                                                 .shape = {unit_.elements},
                                                 .dtype = job_.wire_dtype,
                                                 .memory = MemoryClass::communication,
                                                 .shared = !alone});
      add({.op = OpKind::cast, .reads = {travelling_}, .writes = {wire}});
      travelling_ = wire;
    }
    if (alone) return std::exchange(list_, {});
    if (residency_.optimizer)
      add({.op = OpKind::reduce_scatter, .reads = {travelling_}, .writes = {owned(travelling_)}});
    else
      in_place(OpKind::all_reduce, {}, travelling_);
    return std::exchange(list_, {});
  }

  // Once the sum is there: adds it to the step's gradients. Empty where it arrives in their place.
  std::vector<Instruction> land() {
    if (travelling_ == gradients_) return {};
    add({.op = OpKind::accumulate,
         .accumulate = each_micro(job_) ? Accumulate::after_first_micro : Accumulate::never,
         .reads = {residency_.optimizer ? owned(travelling_) : travelling_},
         .writes = {residency_.optimizer ? owned(gradients_) : gradients_}});
    return std::exchange(list_, {});
  }

  int64_t elements() const { return unit_.elements; }

 private:
  bool narrow() const { return job_.wire_dtype != DType::f32; }

  // The owned slice of a unit buffer; a buffer that holds nothing else is it.
  BufferId owned(BufferId id) {
    const Range slice = owned_slice(unit_, place_);
    const Range held = range_of(program_.at(id), unit_, place_);
    return program_.view(id, slice.begin - held.begin, slice.size());
  }
  void add(Instruction op) {
    op.when = when_;
    op.group = group_;
    list_.push_back(std::move(op));
  }
  void in_place(OpKind op, const OpAttrs& attrs, BufferId buffer) {
    add({.op = op, .attrs = attrs, .reads = {buffer}, .writes = {buffer}});
  }

  Program& program_;
  const Job& job_;
  Place place_;
  const Residency& residency_;
  const Unit& unit_;
  BufferId gradients_ = kNone, micro_ = kNone, travelling_ = kNone;
  When when_ = When::every_micro;
  int32_t group_ = 0;
  std::vector<Instruction> list_;
};

// Reductions whose sums have not landed yet. They land in the order they were sent, late enough for
// computation to run beside them, early enough that no more than `limit` elements are on their way.
class OnTheWay {
 public:
  OnTheWay(const Program& program, const Job& job)
      : limit_(job.overlap_comm ? std::min(job.reduce_bucket_elements, most_on_the_way(program))
                                : 0) {}

  void make_room(int64_t elements, std::vector<Instruction>& list) {
    while (!units_.empty() && (units_.size() >= kMostUnits || elements_ + elements > limit_))
      land(list);
  }
  void add(UnitReduction& unit, std::vector<Instruction>& list) {
    units_.push_back(&unit);
    elements_ += unit.elements();
    if (elements_ > limit_) land(list);  // too large a unit, alone
  }
  void finish(std::vector<Instruction>& list) {
    while (!units_.empty()) land(list);
  }

 private:
  void land(std::vector<Instruction>& list) {
    for (Instruction& op : units_.front()->land()) list.push_back(std::move(op));
    elements_ -= units_.front()->elements();
    units_.pop_front();
  }

  static constexpr size_t kMostUnits = 2;

  int64_t limit_, elements_ = 0;
  std::deque<UnitReduction*> units_;
};

}  // namespace

void reduce(Program& program, const Job& job, Place place, const Residency& residency) {
  std::vector<UnitReduction> units;
  for (const Unit& unit : program.units) units.emplace_back(program, job, place, residency, unit);

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
  if (apart(job)) {
    for (size_t i = 0; i < program.instructions.size(); ++i)
      if (writes_unit[i] >= 0 &&
          program.instructions[i].accumulate == Accumulate::after_first_micro)
        program.instructions[i].accumulate = Accumulate::never;
    for (const Parameter& p : program.parameters) {
      if (p.gradient == kNone) continue;
      program.at(p.gradient).parent = units[static_cast<size_t>(p.unit)].micro_gradients();
      program.at(p.gradient).parent_offset = p.offset;
    }
  }

  OnTheWay on_the_way(program, job);
  std::vector<Instruction> list;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const int32_t group = program.instructions[i].group;
    const int unit = writes_unit[i];
    if (unit >= 0 && first[static_cast<size_t>(unit)] == i) {
      UnitReduction& reduction = units[static_cast<size_t>(unit)];
      for (Instruction& op : reduction.before(group)) list.push_back(std::move(op));
    }
    list.push_back(std::move(program.instructions[i]));
    if (unit < 0 || last[static_cast<size_t>(unit)] != i) continue;
    UnitReduction& reduction = units[static_cast<size_t>(unit)];
    on_the_way.make_room(reduction.elements(), list);
    for (Instruction& op : reduction.send(group)) list.push_back(std::move(op));
    on_the_way.add(reduction, list);
  }
  on_the_way.finish(list);
  program.instructions = std::move(list);
}

}  // namespace dstrain
