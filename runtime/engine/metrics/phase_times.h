// The times of a step's phases, as DeepSpeed's wall_clock_breakdown names them.
#pragma once

#include <optional>
#include <vector>

namespace dstrain {

// Milliseconds. Every moment of a step counts in one member of one micro-batch.
struct PhaseTimes {
  double forward = 0;         // with the beginning of the step, in which the batch is read
  double backward_inner = 0;  // the backward pass
  double backward_allreduce =
      0;            // waiting for sums of gradients over ranks, beyond what computing hides
  double step = 0;  // the update

  double backward() const { return backward_inner + backward_allreduce; }
};

// Milliseconds in which messages between the stages of a pipeline are under way, also beside computing.
struct MessageTimes {
  double send_output = 0, send_grad = 0, recv_input = 0, recv_grad = 0;
};

struct StepPhases {
  std::vector<PhaseTimes> micro_batches;   // the update is in the last one
  std::optional<MessageTimes> messages{};  // of a pipeline

  PhaseTimes all() const {
    PhaseTimes sum;
    for (const PhaseTimes& m : micro_batches) {
      sum.forward += m.forward;
      sum.backward_inner += m.backward_inner;
      sum.backward_allreduce += m.backward_allreduce;
      sum.step += m.step;
    }
    return sum;
  }
};

}  // namespace dstrain
