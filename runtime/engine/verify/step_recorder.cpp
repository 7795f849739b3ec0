#include "runtime/engine/verify/step_recorder.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "runtime/core/checksum.h"
#include "runtime/core/error.h"
#include "runtime/engine/verify/layer_faults.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/residency.h"
#include "runtime/plan/step_kinds.h"

namespace dstrain {
namespace {

// Returns whether the instruction loads the batches: it is issued once and writes those of all micro-batches.
bool loads_batches(const Program& program, const Instruction& op) {
  return op.when == When::step_begin && std::ranges::any_of(op.writes, [&](BufferId id) {
           return id != kNone && program.at(id).per_micro;
         });
}

}  // namespace

std::vector<float> values_of(const Tensor& tensor, RemoteMemory* owner) {
  std::vector<float> result(static_cast<size_t>(tensor.elements()));
  on_host(owner, tensor, HostAccess::read, [&](int64_t at, const Tensor& part) {
    float* const to = result.data() + at;
    const int64_t n = part.elements();
    const auto widen = [&](const auto* from) {
      for (int64_t i = 0; i < n; ++i) to[i] = to_float(from[i]);
    };
    switch (part.dtype) {
      case DType::f32:
        return widen(part.as<float>());
      case DType::bf16:
        return widen(part.as<bf16>());
      case DType::f16:
        return widen(part.as<f16>());
      case DType::u8:
        for (int64_t i = 0; i < n; ++i)
          to[i] = static_cast<float>(static_cast<uint8_t>(part.as<std::byte>()[i]));
        return;
      case DType::f64:
      case DType::i32:
        throw InternalError(fmt::format("values of type {} are not compared", name_of(part.dtype)));
    }
  });
  return result;
}

StepRecorder::StepRecorder(int64_t observed, int64_t last, bool terms, StepObserver* fault)
    : observed_(observed), last_(last), terms_(terms), fault_(fault) {}

int32_t StepRecorder::index_of(const std::string& name, BufferRole role, int32_t copy_of) {
  const auto [found, added] = index_.try_emplace(name, static_cast<int32_t>(record_.names.size()));
  if (added) record_.add_name(name, role, copy_of);
  return found->second;
}

int32_t StepRecorder::index_of(const Program& program, BufferId id) {
  const Buffer& buffer = program.at(id);
  return index_of(buffer.name, buffer.role,
                  buffer.copy_of == kNone ? -1 : index_of(program, program.original(id)));
}

RecordedValue StepRecorder::value_of(const ObservedIssue& issue, BufferId id,
                                     const Tensor& tensor) {
  const Program& program = issue.plan.program;
  RecordedValue value{.name = index_of(program, id), .root = index_of(program, program.root(id))};
  if (program.space_of(id) == Space::disk) return value;
  value.elements = tensor.elements();
  RemoteMemory* const owner = issue.arenas.owner_of(issue.plan, id);
  if (owner == nullptr) {
    value.checksum = checksum_of(tensor.data, tensor.bytes());
    return value;
  }
  std::vector<std::byte> copy(static_cast<size_t>(tensor.bytes()));
  owner->download(copy.data(), tensor.data, tensor.bytes());
  value.checksum = checksum_of(copy.data(), tensor.bytes());
  return value;
}

void StepRecorder::add(const ObservedIssue& issue, int32_t micro,
                       const std::vector<RecordedValue>& inputs,
                       const std::vector<RecordedValue>& outputs) {
  const Instruction& op = issue.instruction();
  const std::string& group = issue.plan.program.group_name(op);
  const Moves moves = !is_posted(op.op) || adds_over_ranks(op.op) ? Moves::nothing
                      : receives_message(op)                      ? Moves::receives
                      : is_message(op.op)                         ? Moves::sends
                                                                  : Moves::values;
  record_.issues.push_back(
      {.step = static_cast<int32_t>(issue.state.step),
       .title = index_of(group.empty() ? std::string(name_of(op.op))
                                       : fmt::format("{} {}", name_of(op.op), group)),
       .micro = micro,
       .at_end = op.when == When::step_end,
       .moves = moves,
       .computes = has_kernel(op.op) || loads_batches(issue.plan.program, op),
       .sums = makes_sums_over_ranks(op.op),
       .inputs = static_cast<int32_t>(inputs.size()),
       .outputs = static_cast<int32_t>(outputs.size()),
       .first = static_cast<int64_t>(record_.values.size())});
  for (const auto* list : {&inputs, &outputs})
    record_.values.insert(record_.values.end(), list->begin(), list->end());
}

IssueChange StepRecorder::before(const ObservedIssue& issue) {
  const bool observed = issue.state.step <= observed_;
  const Instruction& op = issue.instruction();
  if (observed || issue.state.step == last_) add_gradient(issue);
  if (observed) {
    std::vector<RecordedValue>& inputs = inputs_[{issue.issue.instruction, issue.issue.micro}];
    inputs.clear();
    for (const BufferId id : op.reads)
      if (id != kNone) inputs.push_back(value_of(issue, id));
  }
  return fault_ ? fault_->before(issue) : IssueChange{};
}

void StepRecorder::after(const ObservedIssue& issue) {
  if (fault_) fault_->after(issue);
  if (issue.state.step > observed_) return;
  const Instruction& op = issue.instruction();
  if (loads_batches(issue.plan.program, op)) return add_batch(issue);
  if (terms_ && issue.state.step == 1) add_terms(issue);
  std::vector<RecordedValue> outputs;
  for (const BufferId id : op.writes)
    if (id != kNone) outputs.push_back(value_of(issue, id));
  if (makes_sums_over_ranks(op.op)) add_slices(issue, outputs);
  add(issue, issue.issue.micro, inputs_[{issue.issue.instruction, issue.issue.micro}], outputs);
}

void StepRecorder::add_slices(const ObservedIssue& issue, std::vector<RecordedValue>& outputs) {
  const Instruction& op = issue.instruction();
  const BufferId id = op.writes[0];
  const Buffer& buffer = issue.plan.program.at(id);
  const Tensor whole = issue.tensor(id);
  const int64_t ranks = issue.plan.place.ranks_in(issue.plan.comm_channel(op).group);
  const int64_t count = whole.elements() / ranks;
  if (buffer.parent != kNone || whole.elements() != count * ranks ||
      issue.tensor(op.reads[0]).elements() != whole.elements())
    return;
  for (int64_t r = 0; r < ranks; ++r) {
    const Tensor slice{static_cast<std::byte*>(whole.data) + r * count * size_of(whole.dtype),
                       {count},
                       whole.dtype};
    outputs.push_back(value_of(issue, id, slice));
    outputs.back().name = index_of(part_name(buffer.name, r * count, (r + 1) * count), buffer.role);
  }
}

// One instruction loads the batches of all micro-batches.
void StepRecorder::add_batch(const ObservedIssue& issue) {
  for (int m = 0; m < static_cast<int>(issue.plan.micro_batches); ++m) {
    std::vector<RecordedValue> outputs;
    for (const BufferId id : issue.instruction().writes)
      if (id != kNone)
        outputs.push_back(value_of(issue, id, issue.arenas.tensor(issue.plan, id, m)));
    add(issue, m, {}, outputs);
  }
}

void StepRecorder::add_gradient(const ObservedIssue& issue) {
  const Program& program = issue.plan.program;
  const Instruction& op = issue.instruction();
  const Unit* const unit = unit_of_norm(program, op);
  if (unit == nullptr) return;
  const Tensor read = issue.tensor(op.reads[0]);
  Range range = owned_slice(*unit, issue.plan.place, adds_of(*unit, issue.plan.adds));
  if (read.elements() == unit->elements) range = {0, unit->elements};
  if (read.elements() != range.size()) return;
  std::vector<float> values = values_of(read, issue.arenas.owner_of(issue.plan, op.reads[0]));
  for (float& value : values) value /= issue.state.loss_scale;
  const int32_t root = index_of(program, program.root(op.reads[0]));
  for (const int index : unit->parameters) {
    const Parameter& p = program.parameter(index);
    const Range part = common(range, elements_of(p));
    if (part.size() <= 0) continue;
    add_pieces(issue.state.step, p.name, kGradientSlot, root,
               {part.begin - p.offset, p.part, p.shape},
               {values.data() + (part.begin - range.begin), {part.size()}, DType::f32}, nullptr);
  }
}

void StepRecorder::add_terms(const ObservedIssue& issue) {
  const Program& program = issue.plan.program;
  const Instruction& op = issue.instruction();
  const bool adds = op.accumulate == Accumulate::always ||
                    (op.accumulate == Accumulate::after_first_micro && issue.issue.micro > 0);
  for (const BufferId id : op.writes) {
    if (id == kNone) continue;
    const auto parameter = std::ranges::find(program.parameters, id, &Parameter::gradient);
    if (parameter == program.parameters.end()) continue;
    std::vector<float>& sum = sums_[id];
    std::vector<float> values = values_of(issue.tensor(id), issue.arenas.owner_of(issue.plan, id));
    double largest = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const double before = adds && i < sum.size() ? static_cast<double>(sum[i]) : 0;
      largest = std::max(largest, std::abs(static_cast<double>(values[i]) - before));
    }
    record_.terms.push_back({.name = index_of(parameter->name),
                             .largest = largest / static_cast<double>(issue.state.loss_scale)});
    sum = std::move(values);
  }
}

// Records the elements by where they are in the whole tensor, whatever part of it the rank has.
void StepRecorder::add_pieces(int64_t step, const std::string& name, std::string_view slot,
                              int32_t root, const HeldElements& held, const Tensor& values,
                              RemoteMemory* owner) {
  if (values.elements() == 0) return;
  const std::vector<float> floats = values_of(values, owner);
  const auto add = [&](const PartRun& run) {
    record_.pieces.push_back({.step = static_cast<int32_t>(step),
                              .name = index_of(name),
                              .slot = index_of(std::string(slot)),
                              .root = root,
                              .begin = run.whole,
                              .count = run.count,
                              .first = static_cast<int64_t>(record_.floats.size()),
                              .at = static_cast<int64_t>(record_.issues.size())});
    const auto first = floats.begin() + (run.held - held.begin);
    record_.floats.insert(record_.floats.end(), first, first + run.count);
  };
  const auto count = static_cast<int64_t>(floats.size());
  if (held.part.by == TensorPart::By::nothing)
    add({held.begin, held.begin, count});
  else
    for_runs(held.part, held.whole, held.begin, count, add);
}

void StepRecorder::add_state(const Trainer& trainer) {
  const Program& program = trainer.plan().program;
  for (const StateEntry& entry : trainer.model().everything()) {
    if (entry.buffer == kNone) continue;
    add_pieces(trainer.state().step, entry.name, entry.slot,
               index_of(program, program.root(entry.buffer)),
               {entry.begin, entry.part, entry.global_shape}, entry.local, entry.device);
  }
}

void StepRecorder::after_step(const Trainer& trainer) {
  const StepState& s = trainer.state();
  const int64_t sent = trainer.communicator().wire_bytes();
  record_.steps.push_back({.step = s.step,
                           .loss = s.loss_sum / static_cast<double>(s.targets),
                           .norm = s.grad_norm,
                           .skipped = s.skip,
                           .sent = sent - sent_before_,
                           .planned = wire_bytes(trainer.newest_plan())});
  sent_before_ = sent;
  if (s.step <= observed_ || s.step == last_) add_state(trainer);
}

}  // namespace dstrain
