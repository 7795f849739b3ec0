// Offload of gradients. Where the host updates, the gradients of a unit leave the device as soon as ranks have added
// them, and the host adds those of the step's micro-batches.
#include <optional>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/passes/transfers.h"

namespace dstrain {
namespace {

class GradientOffload {
 public:
  GradientOffload(Program& program, bool one_micro_batch)
      : program_(program), one_micro_batch_(one_micro_batch) {}

  void run() {
    for (const Unit& unit : program_.units) {
      Buffer& grads = program_.at(program_.find("grads:" + unit.name));
      grads.space = Space::host;
      grads.shared = false;
    }
    bool finished = false;
    std::vector<Instruction> before = std::exchange(program_.instructions, {});
    for (Instruction& op : before) {
      if (waiting_ && !in_turn_of(op)) add_waiting();
      if (op.op == OpKind::accumulate && on_host(op.writes[0])) {
        bring(std::move(op));
        continue;
      }
      if (op.op == OpKind::sum_squares && !finished) to_host_sums(op);
      if (op.op == OpKind::finish_gradients) {
        finished = true;
        bring_sums(op);
      }
      program_.instructions.push_back(std::move(op));
    }
  }

 private:
  bool on_host(BufferId id) const { return program_.space_of(id) == Space::host; }

  bool in_turn_of(const Instruction& op) const {
    return op.when != When::step_end && op.phase == waiting_->phase && op.chunk == waiting_->chunk;
  }
  void add_waiting() {
    if (waiting_) program_.instructions.push_back(*std::exchange(waiting_, std::nullopt));
  }

  // Adds the copy of a sum over ranks, and what adds it to the step's gradients. The host does that when the next
  // unit's copy has been posted, so that it waits for no work that the device has just been given.
  void bring(Instruction op) {
    const BufferId sum = op.reads[0], grads = op.writes[0];
    const bool as_it_is = one_micro_batch_ && program_.at(sum).dtype == program_.at(grads).dtype;
    BufferId to = grads;
    if (!as_it_is) {
      Buffer arrived{.name = "arrived:" + program_.at(grads).name,
                     .shape = program_.at(sum).shape,
                     .dtype = program_.at(sum).dtype,
                     .memory = MemoryClass::communication,
                     .space = Space::host};
      to = op.reads[0] = program_.add_buffer(std::move(arrived));
    }
    Instruction like = op;
    like.accumulate = Accumulate::never;
    for (Instruction& hop : transfer(program_, sum, to, like))
      program_.instructions.push_back(std::move(hop));
    add_waiting();
    if (!as_it_is) waiting_ = std::move(op);
  }

  // Makes the host add the squares of the gradients that it has.
  void to_host_sums(Instruction& op) {
    const BufferId sum = op.writes[0], all = program_.root(sum);
    if (sums_ == kNone) {
      Buffer sums = program_.at(all);
      sums.name = "host:" + sums.name;
      sums.space = Space::host;
      sums_ = program_.add_buffer(std::move(sums));
    }
    const int64_t at = sum == all ? 0 : program_.at(sum).parent_offset;
    op.writes[0] = program_.view(sums_, at, 1);
  }

  void bring_sums(const Instruction& finish) {
    for (Instruction& hop : transfer(program_, sums_, finish.reads[0],
                                     {.when = When::step_end, .group = finish.group}))
      program_.instructions.push_back(std::move(hop));
  }

  Program& program_;
  const bool one_micro_batch_;
  std::optional<Instruction> waiting_;  // adds what has been posted last
  BufferId sums_ = kNone;               // of squares, on the host
};

}  // namespace

void offload_gradients(Program& program, const Job& job) {
  const bool leave =
      update_space(job.offload) == Space::host && job.reduce == ReduceMode::micro_batch;
  if (leave) GradientOffload(program, job.batch.accumulation == 1).run();
}

}  // namespace dstrain
