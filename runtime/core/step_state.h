// Step state: all values that change from one step to the next, in one block. Kernels read it by address, so
// that instructions have constant arguments and a step can be replayed as a graph. The trainer writes it
// before a step, finish_gradients writes it within the step, and the host reads it once at the end.
#pragma once

#include <cstdint>

namespace dstrain {

struct StepState {
  // Set by the trainer before the first instruction.
  uint64_t seed = 0;
  int64_t step = 0;           // number of this step, from 1; skipped steps count
  int64_t applied_steps = 0;  // updates before this step: skipped steps do not count
  int64_t first_sample =
      0;  // place of the step's first row of tokens, or sample, in the order of all
  float lr = 0;
  float adam_lr = 0;   // with Muon: of the parameters that it leaves to Adam
  double beta1 = 0.9;  // double, because kernels compute 1 - beta: 1 - 0.9999f is off by 1.7e-4
  double beta2 = 0.999;
  float bias_correction1 = 1;  // 1 - beta1^t, or 1 where the optimizer has none
  float bias_correction2 = 1;
  // With ZeroOneAdam: the sum of the learning rates of the local steps before this one that are not synchronised yet,
  // and whether what packing has lost counts as 0 because something else is packed from this step on.
  double local_lr = 0;
  int32_t drop_errors = 0;

  // Dynamic loss scaling (DeepSpeed's ZeRO 1-3 behaviour); loss_scale is that of this step's backward pass.
  float loss_scale = 1;
  float next_loss_scale = 1;
  int32_t hysteresis = 1;
  int64_t last_overflow = -1;  // iteration of the newest overflow
  int64_t scaler_iteration = 0;
  int32_t scale_exhausted = 0;  // 1: an overflow at the minimum loss scale, which ends the run

  // Sums over the step: of this rank first, of all ranks after finish_gradients.
  double loss_sum = 0;  // unscaled loss summed over targets
  int64_t targets = 0;  // targets of the global batch (ignored ones, < 0, not counted)
  float d_loss = 0;  // loss_scale / targets that share a gradient: the gradient of a target's loss
  double grad_square_sum = 0;  // of the scaled gradient that this rank updates with
  double mean_square_sum =
      0;  // the mean over all different gradients: of one gradient, grad_square_sum

  // Results of finish_gradients.
  float grad_norm =
      0;  // unscaled, before clipping; of several gradients the root of the mean square
  float grad_scale = 1;  // clip coefficient / loss_scale: multiplies every gradient element
  int32_t skip = 0;      // 1: the step changes no parameter
  int32_t stop = 0;      // before: this rank was asked to stop; after: any rank was
};

}  // namespace dstrain
