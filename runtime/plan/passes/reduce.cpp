#include <algorithm>
#include <deque>
#include <memory>
#include <unordered_map>
#include <utility>

#include "runtime/plan/codecs/codecs.h"
#include "runtime/plan/codecs/gradient_codecs.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

// Returns what an instruction for every micro-batch has that is issued where `op` is: its group, its phase and its chunk.
Instruction issued_at(const Instruction& op) {
  return {.group = op.group, .phase = op.phase, .chunk = op.chunk};
}

// Appends what writes zeros to the padding between the gradients of a unit's parameters in `buffer`, which holds all
// of the unit's.
void add_zeros(Program& program, const Unit& unit, BufferId buffer, const Instruction& like,
               std::vector<Instruction>& list) {
  int64_t at = 0;
  const auto zero_until = [&](int64_t end) {
    if (at >= end) return;
    list.push_back(like);
    list.back().op = OpKind::zero;
    list.back().writes = {program.view(buffer, at, end - at)};
  };
  for (int index : unit.parameters) {
    const Parameter& p = program.parameter(index);
    if (p.gradient == kNone) continue;
    zero_until(p.offset);
    at = p.offset + program.at(p.gradient).shape.elements();
  }
  zero_until(unit.elements);
}

// Returns how the gradients of the unit with this index travel from `micro_gradients`, where ranks add after each micro-batch,
// or else from `gradients`, and are added to `gradients`; null if nothing is done unit by unit. `step`: takes the sums.
std::unique_ptr<Codec> gradient_codec(const CodecPlan& plan, int unit, StepGradients& step) {
  switch (plan.program.unit(unit).codecs.gradients) {
    case CodecKind::int4_blocks:
      return std::make_unique<Int4Gradients>(plan, unit, step);
    case CodecKind::expert_terms:
      return std::make_unique<ExpertTerms>(plan, unit, step);
    case CodecKind::token_rows:
      return std::make_unique<TokenRows>(plan, unit, step);
    case CodecKind::low_rank:
    case CodecKind::not_sent:
      return nullptr;
    default:
      return std::make_unique<WireGradients>(plan, unit, step);
  }
}

// Makes the instructions around those that compute the gradients of one unit.
class UnitReduction {
 public:
  UnitReduction(const CodecPlan& plan, int unit, StepGradients& step)
      : plan_(plan), unit_(unit), codec_(gradient_codec(plan, unit, step)) {}

  // Appends what precedes the first write, at `first`: zeros between the parameters, unless the step's gradients are added
  // in place and live for the run. Norms and optimizers read whole ranges of a unit.
  void begin(const Instruction& first, std::vector<Instruction>& list) {
    const UnitBuffers& buffers = unit().buffers;
    const BufferId written =
        buffers.micro_gradients.id != kNone ? buffers.micro_gradients.id : buffers.gradients.id;
    // Terms are sent without what lies between them.
    if (plan_.program.at(written).lifetime != Lifetime::persistent && !has_terms())
      add_zeros(plan_.program, unit(), written, issued_at(first), list);
  }

  // Appends what precedes a write.
  void prepare(Instruction& writer, std::vector<Instruction>& list) {
    if (codec_) codec_->prepare(writer, list);
  }

  // Appends what follows the last write, at `last`: this rank's gradients are sent.
  void send(const Instruction& last, std::vector<Instruction>& list) {
    Instruction like = issued_at(last);
    const bool every = plan_.residency.reduce == ReduceMode::micro_batch;
    const UnitBuffers& buffers = unit().buffers;
    if (!every && buffers.micro_gradients.id != kNone && !has_terms()) {
      Instruction add = like;
      add.op = OpKind::accumulate;
      add.accumulate = Accumulate::after_first_micro;
      add.reads = {buffers.micro_gradients.id};
      add.writes = {buffers.gradients.id};
      list.push_back(std::move(add));
    }
    if (!every) like.when = When::last_micro;
    if (codec_) codec_->send(like, list);
  }
  void forward(std::vector<Instruction>& list) {
    if (codec_) codec_->forward(list);
  }
  // Appends what adds the received sum to the step's gradients.
  void receive(std::vector<Instruction>& list) {
    if (codec_) codec_->receive(list);
  }

  int64_t elements() const { return unit().elements; }

  // Returns whether what a micro-batch adds to the gradients of those before it is added behind, and not by the writer.
  bool adds_behind() const {
    const Residency& r = plan_.residency;
    return has_terms() ? r.reduce == ReduceMode::micro_batch : r.has_micro_gradients();
  }

 private:
  bool has_terms() const { return unit().codecs.gradients == CodecKind::expert_terms; }

  Unit& unit() const { return plan_.program.unit(unit_); }

  CodecPlan plan_;
  int unit_;
  std::unique_ptr<Codec> codec_;
};

// Reductions that have been sent and whose sums have not been added. They are added in the order in which
// they were sent, late enough for computation to run beside them, and early enough that no more than `limit`
// elements are in communication.
class SentReductions {
 public:
  SentReductions(const Program& program, const Job& job, StepGradients& step)
      : step_(step),
        limit_(job.overlap_comm ? std::min(job.reduce_bucket_elements, most_in_flight(program))
                                : 0) {}

  // Appends what sends the unit, whose last write is at `last`, and what others have to do meanwhile.
  void send(UnitReduction& unit, const Instruction& last, std::vector<Instruction>& list) {
    while (!units_.empty() && (units_.size() >= kMostUnits || elements_ + unit.elements() > limit_))
      add_oldest(list);
    unit.send(last, list);
    for (UnitReduction* before : units_) before->forward(list);
    units_.push_back(&unit);
    elements_ += unit.elements();
    if (elements_ > limit_) add_oldest(list);  // the unit alone exceeds the limit
  }
  void finish(std::vector<Instruction>& list) {
    while (!units_.empty()) add_oldest(list);
    step_.finish(list);
  }

 private:
  void add_oldest(std::vector<Instruction>& list) {
    units_.front()->receive(list);
    elements_ -= units_.front()->elements();
    units_.pop_front();
  }

  static constexpr size_t kMostUnits = 2;

  StepGradients& step_;
  int64_t limit_, elements_ = 0;
  std::deque<UnitReduction*> units_;
};

}  // namespace

void reduce(Program& program, const Job& job, const Place& place, const Residency& residency) {
  const CodecPlan plan{program, job, residency, place};
  StepGradients step(program, job.batch.accumulation == 1);
  std::vector<UnitReduction> units;
  for (size_t u = 0; u < program.units.size(); ++u)
    units.emplace_back(plan, static_cast<int>(u), step);

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

  SentReductions sent(program, job, step);
  std::vector<Instruction> list;
  std::pair<Phase, int32_t> slot{};
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    Instruction& op = program.instructions[i];
    const int unit = writes_unit[i];
    // Sums are added in the slot that sent them: the next one works on another chunk or micro-batch. A head whose loss is
    // computed in pieces sends in the forward phase.
    const std::pair here{op.phase, op.chunk};
    if (std::exchange(slot, here) != here) sent.finish(list);
    if (unit < 0) {
      list.push_back(std::move(op));
      continue;
    }
    UnitReduction& reduction = units[static_cast<size_t>(unit)];
    if (first[static_cast<size_t>(unit)] == i) reduction.begin(op, list);
    reduction.prepare(op, list);
    if (reduction.adds_behind() && op.accumulate == Accumulate::after_first_micro)
      op.accumulate = Accumulate::never;
    list.push_back(op);
    if (last[static_cast<size_t>(unit)] == i) sent.send(reduction, op, list);
  }
  sent.finish(list);
  program.instructions = std::move(list);
  if (residency.codecs.gradients == CodecKind::low_rank) power_sgd(program, job, place);
}

}  // namespace dstrain
