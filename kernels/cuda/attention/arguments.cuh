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
  const void *q = nullptr, *k = nullptr, *v = nullptr;
  void* y = nullptr;     // written by attention, read by attention_grad
  float* lse = nullptr;  // (B,H,T), the same
  const void* d_y = nullptr;
  void *d_q = nullptr, *d_k = nullptr, *d_v = nullptr;
  float* delta = nullptr;  // (B,H,T), backward: sum(d_y y) / drop_scale
  const int32_t* documents =
      nullptr;  // (B,T), the row at which each row's document begins; null: each sample is one

  int32_t* end_queries = nullptr;  // (B,T), backward with documents: the end of each row's document

  int heads = 0, head_size = 0;
  int kv_heads = 0, group = 1;  // heads of keys; heads of queries that each of them serves
  int q_stride = 0,
      kv_stride = 0;  // elements from one row to the next, of q and d_q, and of k, v, d_k and d_v
  int64_t seq = 0;
  bool causal = true;        // false: each query sees all keys
  int window = 0;            // the most keys that a query sees: 1 to T
  float exponent_scale = 0;  // log2(e) / divisor: weights are 2^(score * exponent_scale - ...)
  float score_scale = 0;     // 1 / divisor of the scores
  float limit = 0;      // above 0: a product p of a query and a key becomes limit * tanh(p / limit)
  bool vector = false;  // whether rows of heads can be read and written 16 bytes at a time

  uint32_t drop_threshold = 0;
  float drop_scale = 1;
  uint32_t site = 0;
  int64_t first_head = 0;  // the model's head of queries that head 0 is, which masks follow from
  const StepState* state = nullptr;  // read only with dropout
  int64_t sample_offset = 0;
};

// Finds the operands of one head of queries, with its head of keys, in one sample.
struct Head {
  const AttentionArguments& a;
  int64_t head, kv_head, sample;

  __device__ int64_t channels() const { return int64_t{a.heads} * a.head_size; }
  // Rows of q or d_q.
  template <class T>
  __device__ HeadRows<T> of_queries(T* q) const {
    return {q + sample * a.seq * a.q_stride + head * a.head_size, a.q_stride,
            static_cast<int>(a.seq), a.head_size};
  }
  // Rows of k, v, d_k or d_v.
  template <class T>
  __device__ HeadRows<T> of_keys(T* k) const {
    return {k + sample * a.seq * a.kv_stride + kv_head * a.head_size, a.kv_stride,
            static_cast<int>(a.seq), a.head_size};
  }
  template <class T>
  __device__ HeadRows<T> rows(T* y) const {
    return {y + sample * a.seq * channels() + head * a.head_size, a.heads * a.head_size,
            static_cast<int>(a.seq), a.head_size};
  }
  // Returns the first key that query `row` sees; it does not fall from one row to the next.
  __device__ __forceinline__ int first_key(int row) const {
    const int first = max(row + 1 - a.window, 0);
    if (a.documents == nullptr || row >= a.seq) return first;
    return max(first, static_cast<int>(a.documents[sample * a.seq + row]));
  }
  // Returns the end of the keys that query `row` sees.
  __device__ __forceinline__ int end_key(int row) const {
    return a.causal ? row + 1 : static_cast<int>(a.seq);
  }
  // Returns the end of the queries that see key `row`.
  __device__ __forceinline__ int end_query(int row) const {
    const int end = a.window < a.seq - row ? row + a.window : static_cast<int>(a.seq);
    if (a.end_queries == nullptr) return end;
    return min(end, static_cast<int>(a.end_queries[sample * a.seq + row]));
  }
  // Returns the offset of row 0 in lse and delta.
  __device__ int64_t statistics() const { return (sample * a.heads + head) * a.seq; }

  __device__ DropoutSource dropout() const {
    DropoutSource d;
    d.threshold = a.drop_threshold;
    if (d.threshold == 0) return d;
    d.key = stream_key(a.state->seed, kDropoutStream + a.site);
    d.sample = static_cast<uint64_t>(a.state->first_sample + a.sample_offset + sample);
    d.head = static_cast<uint64_t>(a.first_head + head);
    d.seq = static_cast<uint64_t>(a.seq);
    return d;
  }
};

// The head of queries that this block works on: blockIdx.y, of sample blockIdx.z.
__device__ __forceinline__ Head query_head_of_block(const AttentionArguments& a) {
  return {a, blockIdx.y, static_cast<int>(blockIdx.y) / a.group, blockIdx.z};
}
// The same where each head of queries has its own head of keys.
__device__ __forceinline__ Head only_head_of_block(const AttentionArguments& a) {
  return {a, blockIdx.y, blockIdx.y, blockIdx.z};
}
// The member'th of the heads of queries that the head of keys blockIdx.y of sample blockIdx.z serves.
__device__ __forceinline__ Head member_head_of_block(const AttentionArguments& a, int member) {
  return {a, static_cast<int64_t>(blockIdx.y) * a.group + member, blockIdx.y, blockIdx.z};
}

}  // namespace dstrain::DSTRAIN_BACKEND
