// ForwardModel: the forward pass of a trained model over one sample, with its own copy of the weights, in f32.
#pragma once

#include <memory>
#include <span>

#include "runtime/comm/self_comm.h"
#include "runtime/config/job.h"
#include "runtime/engine/forward/forward_weights.h"
#include "runtime/engine/step/executor.h"
#include "runtime/plan/plan.h"

namespace dstrain {

class ForwardModel {
 public:
  // What follows the logits: nothing, or the losses. Where the sample holds several documents, the program has the input
  // `documents`.
  enum class Ends { with_logits, with_losses, with_logits_of_documents };

  // `job`: of the run. Samples have `seq_len` tokens. `check_bytes` may be empty. Throws UserError if the weights cannot be
  // read.
  ForwardModel(const Job& job, const WeightsSource& place, const Implementations& implementations,
               int64_t seq_len, Ends ends, int threads, const CheckDeviceBytes& check_bytes = {});

  void run(StepContext& step) { executor_.run(step); }
  const Program& program() const { return plans_.validate.program; }
  // Returns a buffer of the program, in the device's memory.
  Tensor tensor(BufferId id) const { return arenas_.tensor(plans_.validate, id); }
  Device& device() const { return *backend_.device; }
  // Writes row `row` of the newest pass's logits to `to`, without the columns that pad the vocabulary.
  void read_logits(int64_t row, std::span<float> to) const;

 private:
  Communicator& comm() { return comm_ ? *comm_ : self_; }

  Job job_;
  Backend backend_;
  SelfComm self_;
  std::unique_ptr<Communicator> comm_;
  RankPlan plans_;
  Arenas arenas_;
  MeshComm mesh_;
  Executor executor_;
};

}  // namespace dstrain
