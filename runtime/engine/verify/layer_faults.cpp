#include "runtime/engine/verify/layer_faults.h"

#include <algorithm>

#include "runtime/engine/verify/operand_values.h"
#include "runtime/ir/ops/dropout.h"
#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

using Bytes = std::vector<std::byte>;

}  // namespace

const Unit* unit_of_norm(const Program& program, const Instruction& op) {
  // Copies between spaces move such sums, too, and the executor makes them 0.
  if (!has_kernel(op.op) || op.writes.empty() || op.writes[0] == kNone) return nullptr;
  const Buffer& sum = program.at(op.writes[0]);
  if (sum.role != BufferRole::square_sums) return nullptr;
  return &program.unit(sum.parent == kNone ? 0 : sum.parent_offset);
}

bool adds_replicated_gradient(const ObservedIssue& issue) {
  const Instruction& op = issue.instruction();
  if (!is_collective(op.op) || !adds_over_ranks(op.op)) return false;
  if (!issue.plan.comm_channel(op).group.has(Axis::tensor)) return false;
  return issue.plan.program.at(op.reads[0]).role == BufferRole::gradients;
}

bool leave_out_sum(const ObservedIssue& issue, const Bytes& own) {
  const Instruction& op = issue.instruction();
  return change_values(issue, op.writes[0], [&](Bytes& sum) {
    const size_t rank =
        static_cast<size_t>(issue.plan.place.rank_in(issue.plan.comm_channel(op).group));
    const size_t begin = sum.size() < own.size() ? rank * sum.size() : 0;
    const Bytes before = sum;
    std::copy_n(own.begin() + static_cast<std::ptrdiff_t>(begin), sum.size(), sum.begin());
    return sum != before;
  });
}

bool rotate_heads(const ObservedIssue& issue) {
  const Instruction& op = issue.instruction();
  const auto* const attrs = std::get_if<AttentionAttrs>(&op.attrs);
  if (attrs == nullptr || op.phase != Phase::forward) return false;
  const auto heads = static_cast<std::ptrdiff_t>(attrs->heads);
  if (heads < 2) return false;
  const Buffer& result = issue.plan.program.at(op.writes[0]);
  const std::ptrdiff_t row = result.shape[-1] * size_of(result.dtype);
  return change_values(issue, op.writes[0], [&](Bytes& bytes) {
    const Bytes before = bytes;
    for (auto at = bytes.begin(); at != bytes.end(); at += row)
      std::rotate(at, at + row / heads, at + row);
    return bytes != before;
  });
}

bool count_for_each_tensor_rank(const ObservedIssue& issue) {
  const Instruction& op = issue.instruction();
  const Unit* const unit = unit_of_norm(issue.plan.program, op);
  if (unit == nullptr || !unit->axes.has(Axis::tensor)) return false;
  return change_values(issue, op.writes[0], [&](Bytes& bytes) {
    double value = 0;
    std::memcpy(&value, bytes.data(), sizeof value);
    const double counted = value * issue.plan.place.ranks_in(Axis::tensor);
    std::memcpy(bytes.data(), &counted, sizeof counted);
    return counted != value;
  });
}

bool shift_targets_late(const ObservedIssue& issue) {
  const Program& program = issue.plan.program;
  const Place& place = issue.plan.place;
  const Instruction& op = issue.instruction();
  if (!rule_of(op.op).reads_targets || place.ranks_in(Axis::sequence) == 1) return false;
  const Buffer& targets = program.at(op.reads[1]);
  const int64_t all = program.at(program.root(op.reads[1])).shape.elements();
  const int64_t end =
      (targets.parent == kNone ? 0 : targets.parent_offset) + targets.shape.elements();
  if (end != all / place.ranks_in(Axis::sequence) * (place.rank_in(Axis::sequence) + 1))
    return false;
  return change_values(issue, op.reads[1], [](Bytes& bytes) {
    const auto last = bytes.end() - static_cast<std::ptrdiff_t>(sizeof(int32_t));
    const Bytes before(last, bytes.end());
    std::copy_n(bytes.begin(), sizeof(int32_t), last);
    return !std::equal(before.begin(), before.end(), last);
  });
}

std::optional<OpAttrs> without_offset(const Instruction& op) {
  return op.phase == Phase::forward ? with_first_mask(op.attrs) : std::nullopt;
}

}  // namespace dstrain
