// The runs with which a configuration is compared: the same training done plainly.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/config/job.h"

namespace dstrain {

// Returns the job as plain data parallelism on as many data-parallel ranks: stage 0, no pipeline, no overlap but that of
// the tensor group, no recompute, no offload, the loss in one piece. Where ranks add is kept, and what changes the numbers
// (codecs, sparse gradients) at the lowest stage that has it; so are the sequence and tensor ranks, whose sums are in
// another order than one rank's. A pipeline whose first and last part share a parameter stays one of as many stages, with
// the plainest schedule that adds the two parts' gradients in its order: GPipe, or ZB-V, which has both parts on one stage.
// So the weights are those of the job, bit for bit.
Job plain_job(const Job& job);

// Returns the job on one rank, which has the whole model and takes the micro-batches of all data-parallel ranks one after
// the other, without codecs and without rounding what ranks would send: micro-batch m of rank r of N is its micro-batch
// m * N + r.
Job naive_job(const Job& job);

// How far the numbers of the configured run may be from those of naive_job(), as shares of these.
struct Tolerance {
  double gradient =
      0;  // of a tensor's gradient in the first step: of its terms' largest elements, added
  bool of_unit = false;       // as a share of those of the tensor's layer
  double least = 0;           // of a gradient's element besides: what f16 cannot hold
  double first_loss = 0;      // of the first step
  double loss = 0, norm = 0;  // of the steps up to `steps`
  bool later_norms = true;    // are compared; else only that of the first step
  // After so many steps the job sends what approximates gradients, and its numbers are those of plain_job(), which does
  // so too, and no longer those of naive_job().
  int64_t steps = INT64_MAX;
  std::string reason;  // "12 micro-batches added in fp32"
};
Tolerance tolerance_of(const Job& job);

}  // namespace dstrain
