#include "runtime/plan/passes/bring_gradients.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/transfers.h"

namespace dstrain {
namespace {

class GradientTransfers {
 public:
  GradientTransfers(Program& program, bool one_micro_batch)
      : program_(program), one_micro_batch_(one_micro_batch) {}

  void run() {
    const auto end = std::ranges::find_if(program_.instructions, ends_gradients, &Instruction::op);
    check(end != program_.instructions.end(), "the step has no end");
    norm_ = program_.root(end->reads[0]);
    for (const Instruction& op : program_.instructions)
      if (adds_to_norm(op)) squares_of_[program_.root(op.reads[0])] = op;
    bool finished = false;
    std::vector<Instruction> before = std::exchange(program_.instructions, {});
    for (Instruction& op : before) {
      if (!waiting_.empty() && !in_turn_of(op)) add_waiting();
      if (!finished && rule_of(op.op).gradient_terms == GradientTerms::micro_batches &&
          program_.space_of(op.writes[0]) != Space::device) {
        bring(std::move(op));
        continue;
      }
      if (adds_to_norm(op)) {
        const Space space = program_.space_of(op.reads[0]);
        if (space == Space::disk) continue;  // found as they passed
        if (space == Space::host) op.writes[0] = on_host(op.writes[0]);
      }
      if (ends_gradients(op.op)) {
        finished = true;
        bring_sums(op);
      }
      program_.instructions.push_back(std::move(op));
    }
  }

 private:
  bool leaves(size_t unit) const { return program_.units[unit].spaces.gradients != Space::device; }

  // Returns whether the op finds the sum of squares of a unit's gradients, of which the norm of all consists.
  bool adds_to_norm(const Instruction& op) const {
    return computes(op.op) && !op.reads.empty() && program_.root(op.writes[0]) == norm_;
  }

  bool in_turn_of(const Instruction& op) const {
    return op.when != When::step_end && op.phase == waiting_.front().phase &&
           op.chunk == waiting_.front().chunk;
  }
  void add_waiting() {
    std::ranges::move(waiting_, std::back_inserter(program_.instructions));
    waiting_.clear();
  }

  BufferId passing(const std::string& name, BufferId like) {
    return program_.add_buffer({.name = name + program_.at(like).name,
                                .shape = program_.at(like).shape,
                                .dtype = program_.at(like).dtype,
                                .memory = MemoryClass::communication,
                                .space = Space::host});
  }

  // Adds the copy of a sum over ranks, and what adds it to the step's gradients. The host does that when the next
  // unit's copy has been posted, so that it waits for no work that the device has just been given.
  void bring(Instruction op) {
    const BufferId sum = op.reads[0], grads = op.writes[0];
    const bool disk = program_.space_of(grads) == Space::disk;
    const bool as_it_is = one_micro_batch_ && program_.at(sum).dtype == program_.at(grads).dtype;
    const BufferId here = disk ? passing("passing:", grads) : grads;  // in the host's memory
    const BufferId to = as_it_is ? here : passing("arrived:", sum);
    Instruction like = op;
    like.accumulate = Accumulate::never;
    for (Instruction& hop : transfer(program_, sum, to, like))
      program_.instructions.push_back(std::move(hop));
    add_waiting();
    op.reads[0] = to;
    op.writes[0] = here;
    if (!as_it_is) waiting_.push_back(std::move(op));
    if (!disk) return;
    Instruction squares = like;
    const Instruction& of_step = squares_of_.at(grads);
    const Buffer& owned =
        program_.at(of_step.reads[0]);  // where gradients are whole, a part of them
    squares.op = OpKind::sum_squares;
    squares.reads = {program_.view(here, owned.parent == kNone ? 0 : owned.parent_offset,
                                   owned.shape.elements())};
    squares.writes = {on_host(of_step.writes[0])};
    waiting_.push_back(std::move(squares));
    for (Instruction& hop : transfer(program_, here, grads, like))
      waiting_.push_back(std::move(hop));
  }

  // Returns the host's copy of a unit's sum of squares.
  BufferId on_host(BufferId sum) {
    const BufferId all = program_.root(sum);
    if (sums_ == kNone) {
      Buffer sums = program_.at(all);
      sums.name = "host:" + sums.name;
      sums.space = Space::host;
      sums_ = program_.add_buffer(std::move(sums));
    }
    return program_.view(sums_, sum == all ? 0 : program_.at(sum).parent_offset, 1);
  }

  // Adds the copies of the host's sums to the device: of consecutive units at once.
  void bring_sums(const Instruction& finish) {
    const size_t units = program_.trained_units().size();
    for (size_t begin = 0, end; begin < units; begin = end) {
      for (end = begin; end < units && leaves(end) == leaves(begin);) ++end;
      if (!leaves(begin)) continue;
      const auto at = static_cast<int64_t>(begin), count = static_cast<int64_t>(end - begin);
      const BufferId from = program_.view(sums_, at, count);
      const BufferId to = program_.view(finish.reads[0], at, count);
      const Instruction like{.when = When::step_end, .group = finish.group};
      for (Instruction& hop : transfer(program_, from, to, like))
        program_.instructions.push_back(std::move(hop));
    }
  }

  Program& program_;
  const bool one_micro_batch_;
  std::vector<Instruction> waiting_;                      // add what has been posted last
  std::unordered_map<BufferId, Instruction> squares_of_;  // the step's, by gradients
  BufferId norm_ = kNone;  // the units' sums of squares, which the end of the gradients reads
  BufferId sums_ = kNone;  // the host's of them
};

}  // namespace

void bring_gradients(Program& program, bool one_micro_batch) {
  const bool leave = std::ranges::any_of(program.trained_units(), [](const Unit& unit) {
    return unit.spaces.gradients != Space::device;
  });
  if (leave) GradientTransfers(program, one_micro_batch).run();
}

}  // namespace dstrain
