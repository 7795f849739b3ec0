#include <algorithm>
#include <deque>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

bool each_micro(const Job& job) {
  return job.reduce == ReduceMode::micro_batch;
}

// Returns whether the gradients of a micro-batch go to an f32 buffer of their own before they are added to
// the step's: because ranks add them first, or because the step's gradients have 16 bits.
bool has_micro_buffer(const Job& job) {
  return each_micro(job) || is_16bit(job.grad_dtype);
}

// The group, the phase and the chunk of an instruction.
struct Position {
  int32_t group = 0;
  Phase phase = Phase::backward;
  int32_t chunk = 0;
};

// Returns what writes zeros to the padding between the gradients of a unit's parameters in `buffer`, which holds all
// of the unit's.
std::vector<Instruction> zero_padding(Program& program, const Unit& unit, BufferId buffer,
                                      const Position& where) {
  std::vector<Instruction> list;
  int64_t at = 0;
  const auto zero_until = [&](int64_t end) {
    if (at < end)
      list.push_back({.op = OpKind::zero,
                      .writes = {program.view(buffer, at, end - at)},
                      .group = where.group,
                      .phase = where.phase,
                      .chunk = where.chunk});
  };
  for (int index : unit.parameters) {
    const Parameter& p = program.parameters[static_cast<size_t>(index)];
    if (p.gradient == kNone) continue;
    zero_until(p.offset);
    at = p.offset + program.at(p.gradient).shape.elements();
  }
  zero_until(unit.elements);
  return list;
}

// Makes the instructions that reduce the gradients of one unit.
class UnitReduction {
 public:
  UnitReduction(Program& program, const Job& job, const Place& place, Axes adds,
                const Residency& residency, Unit& unit)
      : program_(program),
        job_(job),
        place_(place),
        adds_(adds_of(unit, adds)),
        residency_(residency),
        unit_(unit) {}

  // The buffer of a micro-batch's own gradients.
  BufferId micro_gradients() {
    const bool every = each_micro(job_);
    UnitBuffer& micro = unit_.buffers.micro_gradients;
    if (micro.id == kNone)
      micro.id = program_.add_buffer(
          {.name = "micro_grads:" + unit_.name,
           .shape = {unit_.elements},
           .memory = every ? MemoryClass::communication : MemoryClass::workspace});
    return micro.id;
  }

  // Returns what precedes the first write of a micro-batch: zeros for the padding between parameters.
  std::vector<Instruction> before(const Position& first) {
    if (!has_micro_buffer(job_)) return {};
    return zero_padding(program_, unit_, micro_gradients(), first);
  }

  // Returns what follows the last write: this rank's contribution is sent.
  std::vector<Instruction> send(const Position& last) {
    last_ = last;
    when_ = When::every_micro;
    const bool every = each_micro(job_);
    if (!every && has_micro_buffer(job_))
      add({.op = OpKind::accumulate,
           .accumulate = Accumulate::after_first_micro,
           .reads = {micro_gradients()},
           .writes = {unit_.buffers.gradients.id}});
    if (!every) when_ = When::last_micro;
    sent_ = every ? unit_.buffers.micro_gradients : unit_.buffers.gradients;
    const DType held = program_.at(sent_.id).dtype;
    if (alone() && held == DType::f32) {
      if (narrow()) in_place(OpKind::round_wire, WireAttrs{job_.wire_dtype}, sent_.id);
      return std::exchange(list_, {});
    }
    if (held != job_.wire_dtype && (!alone() || narrow())) {
      const BufferId wire = program_.add_buffer({.name = "wire:" + unit_.name,
                                                 .shape = {unit_.elements},
                                                 .dtype = job_.wire_dtype,
                                                 .memory = MemoryClass::communication});
      add({.op = OpKind::cast, .reads = {sent_.id}, .writes = {wire}});
      sent_ = unit_.buffers.wire = {.id = wire};
    }
    if (alone()) return std::exchange(list_, {});
    if (scattered())
      add({.op = OpKind::reduce_scatter, .reads = {sent_.id}, .writes = {owned(sent_)}});
    else
      in_place(OpKind::all_reduce, {}, sent_.id);
    return std::exchange(list_, {});
  }

  // Returns what adds the received sum to the step's gradients; empty if the sum is received in place.
  std::vector<Instruction> add_sum() {
    const UnitBuffer& gradients = unit_.buffers.gradients;
    if (sent_.id == gradients.id) return {};
    add({.op = OpKind::accumulate,
         .accumulate = each_micro(job_) ? Accumulate::after_first_micro : Accumulate::never,
         .reads = {scattered() ? owned(sent_) : sent_.id},
         .writes = {scattered() ? owned(gradients) : gradients.id}});
    return std::exchange(list_, {});
  }

  int64_t elements() const { return unit_.elements; }

 private:
  bool alone() const { return place_.ranks_in(adds_) == 1; }
  bool narrow() const { return job_.wire_dtype != DType::f32; }
  // Returns whether each rank needs the sum of its own slice alone.
  bool scattered() const { return residency_.optimizer != Held::whole; }

  // Returns the owned slice of a unit buffer: the buffer itself if it holds nothing else.
  BufferId owned(const UnitBuffer& buffer) {
    const Range slice = owned_slice(unit_, place_, adds_);
    const int64_t at = position_of(buffer, unit_, place_, slice.begin);
    return program_.view(buffer.id, at, slice.size());
  }
  void add(Instruction op) {
    op.when = when_;
    op.group = last_.group;
    op.phase = last_.phase;
    op.chunk = last_.chunk;
    if (is_collective(op.op)) op.channel = channel_of(place_, adds_);
    list_.push_back(std::move(op));
  }
  void in_place(OpKind op, const OpAttrs& attrs, BufferId buffer) {
    add({.op = op, .attrs = attrs, .reads = {buffer}, .writes = {buffer}});
  }

  Program& program_;
  const Job& job_;
  const Place place_;
  const Axes adds_;
  const Residency& residency_;
  Unit& unit_;
  UnitBuffer sent_;
  When when_ = When::every_micro;
  Position last_;  // of the last write
  std::vector<Instruction> list_;
};

// Reductions that have been sent and whose sums have not been added. They are added in the order in which
// they were sent, late enough for computation to run beside them, and early enough that no more than `limit`
// elements are in communication.
class SentReductions {
 public:
  SentReductions(const Program& program, const Job& job)
      : limit_(job.overlap_comm ? std::min(job.reduce_bucket_elements, most_in_flight(program))
                                : 0) {}

  void make_room(int64_t elements, std::vector<Instruction>& list) {
    while (!units_.empty() && (units_.size() >= kMostUnits || elements_ + elements > limit_))
      add_oldest(list);
  }
  void add(UnitReduction& unit, std::vector<Instruction>& list) {
    units_.push_back(&unit);
    elements_ += unit.elements();
    if (elements_ > limit_) add_oldest(list);  // the unit alone exceeds the limit
  }
  void finish(std::vector<Instruction>& list) {
    while (!units_.empty()) add_oldest(list);
  }

 private:
  void add_oldest(std::vector<Instruction>& list) {
    for (Instruction& op : units_.front()->add_sum()) list.push_back(std::move(op));
    elements_ -= units_.front()->elements();
    units_.pop_front();
  }

  static constexpr size_t kMostUnits = 2;

  int64_t limit_, elements_ = 0;
  std::deque<UnitReduction*> units_;
};

}  // namespace

void reduce(Program& program, const Job& job, const Place& place, Axes adds,
            const Residency& residency) {
  std::vector<UnitReduction> units;
  for (Unit& unit : program.units) units.emplace_back(program, job, place, adds, residency, unit);

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
  if (has_micro_buffer(job)) {
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

  SentReductions sent(program, job);
  std::vector<Instruction> list;
  std::pair<Phase, int32_t> slot{};
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction& op = program.instructions[i];
    const Position here{op.group, op.phase, op.chunk};
    const int unit = writes_unit[i];
    // Sums are added in the slot that sent them: the next one works on another chunk or micro-batch. A head whose loss is
    // computed in pieces sends in the forward phase.
    const std::pair here_slot{here.phase, here.chunk};
    if (std::exchange(slot, here_slot) != here_slot) sent.finish(list);
    if (unit >= 0 && first[static_cast<size_t>(unit)] == i) {
      UnitReduction& reduction = units[static_cast<size_t>(unit)];
      for (Instruction& zero : reduction.before(here)) list.push_back(std::move(zero));
    }
    list.push_back(std::move(program.instructions[i]));
    if (unit < 0 || last[static_cast<size_t>(unit)] != i) continue;
    UnitReduction& reduction = units[static_cast<size_t>(unit)];
    sent.make_room(reduction.elements(), list);
    for (Instruction& sending : reduction.send(here)) list.push_back(std::move(sending));
    sent.add(reduction, list);
  }
  sent.finish(list);
  program.instructions = std::move(list);
}

void clear_padding(Program& program) {
  // The units whose gradients no instruction has written yet. Other gradients come from a buffer of the micro-batch.
  std::unordered_map<BufferId, const Unit*> waiting;
  for (const Parameter& p : program.parameters) {
    const Unit& unit = program.units[static_cast<size_t>(p.unit)];
    const BufferId gradients = unit.buffers.gradients.id;
    if (p.gradient != kNone && program.root(p.gradient) == gradients &&
        program.at(gradients).lifetime != Lifetime::persistent)
      waiting[gradients] = &unit;
  }
  std::vector<Instruction> list;
  for (Instruction& op : program.instructions) {
    for (const BufferId id : op.writes) {
      const auto found = id == kNone ? waiting.end() : waiting.find(program.root(id));
      if (found == waiting.end()) continue;
      const Position first{op.group, op.phase, op.chunk};
      std::ranges::move(zero_padding(program, *found->second, found->first, first),
                        std::back_inserter(list));
      waiting.erase(found);
    }
    list.push_back(std::move(op));
  }
  program.instructions = std::move(list);
}

}  // namespace dstrain
