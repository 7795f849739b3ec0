// Step state: everything that changes from one step to the next, in one block that kernels read by
// address, so that no instruction carries a changing argument and a step can be replayed as it is.
// Written by the trainer before a step and by the FinishGradients instruction inside it; read by
// the host once, at the end of a step.
#pragma once

#include <cstdint>

namespace dstrain {

struct StepState {
  // Set by the trainer before the first instruction.
  uint64_t seed = 0;
  int64_t step = 0;           // optimizer steps begun, skipped ones included; the first step is 1
  int64_t applied_steps = 0;  // updates really applied: the t of Adam and of the lr schedule
  int64_t first_sample = 0;   // global counter of the step's first sample (k * train_batch_size)
  float lr = 0;
  double beta1 = 0.9;  // OneCycle moves beta1; beta2 rests. In double, because 1 - beta is wanted:
  double beta2 = 0.999;        // 1 - 0.9999f would be off by 1.7e-4
  float bias_correction1 = 1;  // 1 - beta1^t, or 1 where the optimizer has none
  float bias_correction2 = 1;

  // Dynamic loss scaling (DeepSpeed's ZeRO 1-3 behaviour); loss_scale is the one this backward uses.
  float loss_scale = 1;
  float next_loss_scale = 1;
  int32_t hysteresis = 1;
  int64_t last_overflow = -1;  // iteration of the newest overflow
  int64_t scaler_iteration = 0;
  int32_t scale_exhausted = 0;  // 1: an overflow at the smallest loss scale; the run cannot go on

  // Sums over the step; local first, then over all ranks.
  double loss_sum = 0;         // unscaled loss summed over targets
  int64_t targets = 0;         // targets of the global batch (ignored ones, < 0, not counted)
  float d_loss = 0;            // loss_scale / targets: the one place where a gradient is divided
  double grad_square_sum = 0;  // of the scaled gradient

  // Results of FinishGradients.
  float grad_norm = 0;   // unscaled, before clipping
  float grad_scale = 1;  // clip coefficient / loss_scale: multiplies every gradient element
  int32_t skip = 0;      // 1: the optimizer and what follows it leave everything as it is
  int32_t stop = 0;      // before: this rank was asked to stop; after: some rank was
};

}  // namespace dstrain
