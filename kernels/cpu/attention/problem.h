// What the bodies of attention share: the operands of one run and the table of functions that one
// instruction set offers. Stands on kernels/attention_sizes.h.
// Invariant: a body computes the bits of a query row (or key row) from the problem alone, whatever
// range of blocks it is asked for, so the division of work over threads never shows.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention_sizes.h"

namespace dstrain::attention {

// Row-major operands; those of the other direction are null.
struct Operands {
  const void* qkv = nullptr;
  void* y = nullptr;     // written by attention, read by attention_grad
  float* lse = nullptr;  // the same
  const void* d_y = nullptr;
  void* d_qkv = nullptr;
  PhiloxKey key{};            // of the dropout site
  uint64_t first_sample = 0;  // global counter of sample 0
};

struct Range {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

// The part of one head's backward pass that a call computes: d_k and d_v of some key blocks, d_q of
// some query blocks. `fused` (both complete) shares the scores between them: 5 products, not 7.
struct GradPart {
  bool fused = false;
  Range key_blocks, query_blocks;
};

// One instruction set's functions. `head` counts (sample, head) pairs; the scratch memory is one
// thread's own, 64-byte aligned.
struct Body {
  int64_t forward_query_block;     // rows of a block of the forward pass
  int64_t query_block, key_block;  // and of the backward pass
  int64_t (*forward_bytes)(const Problem&);
  int64_t (*backward_bytes)(const Problem&);
  void (*forward)(const Problem&, const Operands&, int64_t head, Range query_blocks,
                  std::byte* scratch);
  void (*backward)(const Problem&, const Operands&, int64_t head, const GradPart&,
                   std::byte* scratch);
};

constexpr int64_t divide_up(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}
constexpr int64_t round_up(int64_t n, int64_t to) {
  return divide_up(n, to) * to;
}

// Cuts a thread's scratch memory into 64-byte aligned arrays. Run over a null base it only counts,
// so sizes and addresses come from the same lines of code.
class Carver {
 public:
  explicit Carver(std::byte* base) : base_(base) {}
  template <class T>
  T* take(int64_t n) {
    std::byte* at = base_ ? base_ + bytes_ : nullptr;
    bytes_ += round_up(n * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(at);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  int64_t bytes_ = 0;
};

// Byte address of element `i` of an array of run dtype.
inline const void* element(const void* p, int64_t i, DType dtype) {
  return static_cast<const std::byte*>(p) + i * size_of(dtype);
}
inline void* element(void* p, int64_t i, DType dtype) {
  return static_cast<std::byte*>(p) + i * size_of(dtype);
}

// Where (sample, head) pair `head` lies in the operands.
struct HeadPlace {
  int64_t sample, h;
  int64_t qkv;    // element of its first q in qkv; k and v follow at C and 2C
  int64_t y;      // element of its first y
  int64_t lse;    // element of its first lse
  uint64_t mask;  // dropout element of (query 0, key 0)

  HeadPlace(const Problem& p, int64_t head)
      : sample(head / p.heads),
        h(head % p.heads),
        qkv(sample * p.seq * p.qkv_stride() + h * p.head_size),
        y(sample * p.seq * p.channels() + h * p.head_size),
        lse(head * p.seq),
        mask(static_cast<uint64_t>(h) * static_cast<uint64_t>(p.seq * p.seq)) {}
};

}  // namespace dstrain::attention
