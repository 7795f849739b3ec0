// The arguments of an attention kernel: addresses and sizes. The seed and the first sample, which change from step
// to step, are read from the step state on the device.
#pragma once

#include "kernels/attention_shape.h"
#include "kernels/cuda/attention/dropout.cuh"
#include "kernels/cuda/attention/tiles.cuh"
#include "runtime/core/step_state.h"

namespace dstrain::DSTRAIN_BACKEND {

// The arguments of an attention kernel, passed by value. Addresses are those of device memory, which the caller
// keeps; operands that the kernel does not use are null.
struct AttentionArguments {
  const void* qkv = nullptr;
  void* y = nullptr;     // written by attention, read by attention_grad
  float* lse = nullptr;  // (B,H,T), the same
  const void* d_y = nullptr;
  void* d_qkv = nullptr;
  float* delta = nullptr;  // (B,H,T), backward: sum(d_y y) / drop_scale

  int heads = 0, head_size = 0;
  int64_t seq = 0;
  float exponent_scale = 0;  // log2(e) / sqrt(D): weights are 2^(score * exponent_scale - ...)
  float score_scale = 0;     // 1 / sqrt(D)
  bool vector = false;       // whether rows of heads can be read and written 16 bytes at a time

  uint32_t drop_threshold = 0;
  float drop_scale = 1;
  uint32_t site = 0;
  const StepState* state = nullptr;  // read only with dropout
  int64_t sample_offset = 0;
};

// Finds the operands of the head (blockIdx.y) and the sample (blockIdx.z) that this block works on.
struct HeadOfBlock {
  const AttentionArguments& a;
  int64_t head = blockIdx.y, sample = blockIdx.z;

  __device__ int64_t channels() const { return int64_t{a.heads} * a.head_size; }
  // part 0, 1, 2: q, k, v
  template <class T>
  __device__ HeadRows<T> part(T* qkv, int part) const {
    return {qkv + sample * a.seq * 3 * channels() + part * channels() + head * a.head_size,
            3 * a.heads * a.head_size, static_cast<int>(a.seq), a.head_size};
  }
  template <class T>
  __device__ HeadRows<T> rows(T* y) const {
    return {y + sample * a.seq * channels() + head * a.head_size, a.heads * a.head_size,
            static_cast<int>(a.seq), a.head_size};
  }
  // Returns the offset of row 0 in lse and delta.
  __device__ int64_t statistics() const { return (sample * a.heads + head) * a.seq; }

  __device__ DropoutSource dropout() const {
    DropoutSource d;
    d.threshold = a.drop_threshold;
    if (d.threshold == 0) return d;
    d.key = stream_key(a.state->seed, kDropoutStream + a.site);
    d.sample = static_cast<uint64_t>(a.state->first_sample + a.sample_offset + sample);
    d.head = static_cast<uint64_t>(head);
    d.seq = static_cast<uint64_t>(a.seq);
    return d;
  }
};

}  // namespace dstrain::DSTRAIN_BACKEND
