#include "runtime/engine/verify/seeded_fault.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "runtime/core/error.h"
#include "runtime/engine/verify/layer_faults.h"
#include "runtime/engine/verify/operand_values.h"
#include "runtime/ir/ops/dropout.h"
#include "runtime/ir/rule.h"
#include "runtime/optim/optimizer_rules.h"

namespace dstrain {
namespace {

constexpr const char* kForgotten = "a residual that is forgotten";

BufferRole role_of(const ObservedIssue& issue, BufferId id) {
  return issue.plan.program.at(id).role;
}

// Returns whether the instruction gathers parameters, not activations.
bool gathers_parameters(const ObservedIssue& issue) {
  const Instruction& op = issue.instruction();
  return rule_of(op.op).collective == Collective::all_gather &&
         role_of(issue, op.writes[0]) == BufferRole::parameters;
}

// Returns whether the instruction reads the step's gradient first and multiplies it by the clipping factor.
bool clips_gradient(const Instruction& op) {
  return op.when == When::step_end && rule_of(op.op).clips_gradient;
}

// Returns whether the instruction writes nothing but a gradient of weights, or a sum of such.
bool writes_weight_gradient(const Instruction& op) {
  const OpRule& rule = rule_of(op.op);
  return rule.gradient_terms != GradientTerms::none && rule.sums.first == 0;
}

bool has_dropout(const Instruction& op) {
  return op.phase == Phase::forward && dropout_of(op.attrs) > 0;
}

// Returns the weights that the forward pass reads: of an update's operands the copy in the run's dtype, which comes last and
// may be absent, else the first.
BufferId updated_weights(const Program& program, const Instruction& update) {
  const BufferId last = update.writes.back();
  return last != kNone && is_16bit(program.at(last).dtype) ? last : update.writes[0];
}

// Replaces each value x of an operand by f(x), rounded to its type. Returns whether that changes any bit.
template <class F>
bool map_values(const ObservedIssue& issue, BufferId id, F f) {
  const DType dtype = issue.plan.program.at(id).dtype;
  return change_values(issue, id, [&](std::vector<std::byte>& bytes) {
    const std::vector<std::byte> before = bytes;
    const auto each = [&](auto type, auto round) {
      using T = decltype(type);
      T* const values = reinterpret_cast<T*>(bytes.data());
      for (size_t i = 0; i < bytes.size() / sizeof(T); ++i)
        values[i] = round(f(to_float(values[i])));
    };
    if (dtype == DType::f32) each(float{}, [](float x) { return x; });
    if (dtype == DType::bf16) each(bf16{}, [](float x) { return to_bf16(x); });
    if (dtype == DType::f16) each(f16{}, [](float x) { return to_f16(x); });
    return bytes != before;
  });
}

// The data of rank r are those of rank r - 1.
class RepeatedData final : public Dataset {
 public:
  RepeatedData(const Dataset& data, int64_t shift) : data_(data), shift_(shift) {}
  int64_t samples(Split split) const override { return data_.samples(split); }
  void read(Split split, int64_t first, int64_t count,
            std::span<const InputTensor> inputs) const override {
    data_.read(split, first - shift_, count, inputs);
  }
  const Vocabulary& vocabulary() const override { return data_.vocabulary(); }

 private:
  const Dataset& data_;
  int64_t shift_;
};

}  // namespace

std::unique_ptr<Dataset> data_with_fault(Fault fault, const Dataset& data, const Job& job,
                                         int data_rank) {
  if (fault != Fault::repeated_data || data_rank != job.data_ranks() - 1) return nullptr;
  return std::make_unique<RepeatedData>(data, job.batch.micro_batch);
}

void SeededFault::note(const ObservedIssue& issue, const std::string& what) {
  if (!done_.empty()) return;
  const Instruction& op = issue.instruction();
  done_ =
      fmt::format("{} on rank {} in step {}, micro-batch {}: {} {}", what, rank_, issue.state.step,
                  issue.issue.micro, name_of(op.op), issue.plan.program.group_name(op));
}

// Keeps the values of an operand until put_back().
void SeededFault::keep(const ObservedIssue& issue, BufferId id) {
  Bytes& kept = values_[{issue.issue.instruction, issue.issue.micro}];
  change_values(issue, id, [&](const Bytes& bytes) {
    kept = bytes;
    return false;
  });
  kept_ = id;
}

// Returns whether the values had changed meanwhile.
bool SeededFault::put_back(const ObservedIssue& issue, BufferId id) {
  const auto kept = values_.find({issue.issue.instruction, issue.issue.micro});
  if (kept == values_.end()) return false;
  return change_values(issue, id, [&](Bytes& bytes) {
    const bool changed = bytes != kept->second;
    bytes = kept->second;
    return changed;
  });
}

IssueChange SeededFault::before(const ObservedIssue& issue) {
  if (!acts_ || is_over()) return {};
  const Instruction& op = issue.instruction();
  switch (fault_) {
    case Fault::dropped_gather:
      if (gathers_parameters(issue)) keep(issue, op.writes[0]);
      return {};
    case Fault::missed_replicated_sum:
      if (adds_replicated_gradient(issue)) keep(issue, op.reads[0]);
      return {};
    case Fault::late_shift:
      if (shift_targets_late(issue)) note(issue, "a target that is another row's");
      return {};
    case Fault::mask_without_offset: {
      std::optional<OpAttrs> attrs = without_offset(op);
      if (attrs) note(issue, "the dropout mask of the first rows or heads");
      return {.attrs = attrs};
    }
    case Fault::stale_weight:
      if (rule_of(op.op).moves_weights) keep(issue, updated_weights(issue.plan.program, op));
      return {};
    case Fault::unclipped_unit:
      if (clips_gradient(op)) scale_gradient(issue);
      return {};
    case Fault::lost_residual:
      if (rule_of(op.op).adds_residual && lose_residual(issue)) note(issue, kForgotten);
      return {};
    case Fault::mask_offset:
      if (!has_dropout(op)) return {};
      note(issue, "the dropout mask of the next sample");
      return {.sample_shift = 1};
    case Fault::missed_micro_batch:
      if (op.accumulate != Accumulate::after_first_micro || issue.issue.micro == 0 ||
          !writes_weight_gradient(op))
        return {};
      note(issue, "a gradient that is not added");
      return {.skip = true};
    default:
      return {};
  }
}

// Makes the gradient that the instruction reads so much larger as clipping makes it smaller.
void SeededFault::scale_gradient(const ObservedIssue& issue) {
  const StepState& s = issue.state;
  const float factor = 1 / (s.grad_scale * s.loss_scale);
  if (!(factor > 1.01F) || s.skip != 0) return;
  const BufferId gradient = issue.instruction().reads[0];
  keep(issue, gradient);
  restores_ = map_values(issue, gradient, [factor](float x) { return x * factor; });
}

void SeededFault::after(const ObservedIssue& issue) {
  if (!acts_ || is_over()) return;
  const Instruction& op = issue.instruction();
  switch (fault_) {
    case Fault::dropped_gather:
      if (rule_of(op.op).collective == Collective::all_gather && put_back(issue, op.writes[0]))
        note(issue, "a gather that brings nothing");
      return;
    case Fault::stale_weight:
      if (rule_of(op.op).moves_weights && kept_ != kNone && put_back(issue, kept_))
        note(issue, "weights that stay as they were");
      return;
    case Fault::unclipped_unit:
      if (!restores_) return;
      put_back(issue, kept_);
      return note(issue, "a gradient that is not clipped");
    case Fault::doubled_gradient:
      if (double_gradient(issue)) note(issue, "a gradient that is added twice");
      return;
    case Fault::flipped_bit:
      if (flip_bit(issue)) note(issue, "a flipped bit");
      return;
    case Fault::extra_rounding:
      if (round_once_more(issue)) note(issue, "values rounded to bf16");
      return;
    case Fault::lost_residual:
      if (!rule_of(op.op).adds_residual && lose_residual(issue)) note(issue, kForgotten);
      return;
    case Fault::missed_replicated_sum:
      if (adds_replicated_gradient(issue) &&
          leave_out_sum(issue, values_.at({issue.issue.instruction, issue.issue.micro})))
        note(issue, "a gradient that is not added over the tensor group");
      return;
    case Fault::wrong_heads:
      if (rotate_heads(issue)) note(issue, "each head's result that of the next");
      return;
    case Fault::norm_counted_twice:
      if (count_for_each_tensor_rank(issue)) note(issue, "squares that count for each tensor rank");
      return;
    case Fault::wrong_message:
      if (mix_messages(issue)) note(issue, "the message of micro-batch 0");
      return;
    default:
      return;
  }
}

bool SeededFault::double_gradient(const ObservedIssue& issue) const {
  const Instruction& op = issue.instruction();
  const OpRule& rule = rule_of(op.op);
  return rule.gradient_terms == GradientTerms::rows && issue.issue.micro == 0 &&
         map_values(issue, op.writes[rule.sums.first], [](float x) { return 2 * x; });
}

bool SeededFault::flip_bit(const ObservedIssue& issue) const {
  const Instruction& op = issue.instruction();
  if (op.when != When::step_end || !has_kernel(op.op)) return false;
  for (const BufferId id : op.writes) {
    if (id == kNone || role_of(issue, id) != BufferRole::optimizer_state) continue;
    const auto size = static_cast<size_t>(size_of(issue.plan.program.at(id).dtype));
    if (change_values(issue, id, [size](Bytes& bytes) {
          // Flips a bit of the highest byte of a mantissa near the middle, but not of a 0: that may be of a word which no
          // sample has.
          const size_t count = bytes.size() / size;
          for (size_t i = 0; i < count; ++i) {
            std::byte* const at = bytes.data() + (count / 2 + i) % count * size;
            if (std::all_of(at, at + size, [](std::byte b) { return b == std::byte{}; })) continue;
            at[size == 4 ? 2 : 0] ^= std::byte{0x10};
            return true;
          }
          return false;
        }))
      return true;
  }
  return false;
}

bool SeededFault::round_once_more(const ObservedIssue& issue) const {
  const Instruction& op = issue.instruction();
  if (op.when != When::step_end || !has_kernel(op.op)) return false;
  for (const BufferId id : op.writes) {
    if (id == kNone || issue.plan.program.at(id).dtype != DType::f32) continue;
    const BufferRole role = role_of(issue, id);
    if (role != BufferRole::optimizer_state && role != BufferRole::masters &&
        role != BufferRole::parameters)
      continue;
    if (map_values(issue, id, [](float x) { return to_float(to_bf16(x)); })) return true;
  }
  return false;
}

bool SeededFault::lose_residual(const ObservedIssue& issue) const {
  const Program& program = issue.plan.program;
  const Instruction& op = issue.instruction();
  if (!has_kernel(op.op)) return false;
  for (const BufferId id : op.writes) {
    if (id == kNone) continue;
    const bool residual = std::ranges::any_of(program.codec_state, [&](const CodecState& state) {
      return state.residual && state.values != kNone &&
             program.root(state.values) == program.root(id);
    });
    if (residual && change_values(issue, id, [](Bytes& bytes) {
          const bool any = std::ranges::any_of(bytes, [](std::byte b) { return b != std::byte{}; });
          std::ranges::fill(bytes, std::byte{});
          return any;
        }))
      return true;
  }
  return false;
}

bool SeededFault::mix_messages(const ObservedIssue& issue) {
  const Instruction& op = issue.instruction();
  if (!receives_message(op)) return false;
  if (issue.issue.micro == 0) {
    keep(issue, op.writes[0]);
    return false;
  }
  const auto first = values_.find({issue.issue.instruction, 0});
  return first != values_.end() && change_values(issue, op.writes[0], [&](Bytes& bytes) {
           const bool other = bytes != first->second;
           bytes = first->second;
           return other;
         });
}

}  // namespace dstrain
