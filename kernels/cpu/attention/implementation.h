// What every implementation of attention on the CPU shares: the operands of one run, the table of functions
// that an implementation offers, and the layout of a thread's scratch memory.
// Invariant: the bits of a query row (or key row) depend on the shape and the operands alone, not on the
// range of blocks that a call is asked for. So the division of work over threads changes no result.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/attention_shape.h"
#include "kernels/cpu/attention/dropout_bits.h"

namespace dstrain::attention {

// The arguments of one run of attention or attention_grad: the addresses of its operands, and the values that its
// dropout mask depends on. Operands are row-major and belong to the caller; those that the op does not have are
// null.
struct Operands {
  HeadTensors in;                      // q, k, v, which are only read
  void* y = nullptr;                   // (B*T, C), written by attention, read by attention_grad
  float* lse = nullptr;                // (B, H, T), the same: log of each row's sum of exponentials
  const void* d_y = nullptr;           // (B*T, C)
  HeadTensors gradients;               // of q, k and v
  const int32_t* documents = nullptr;  // (B, T)
  PhiloxKey key{};                     // of the dropout site
  uint64_t first_sample = 0;           // global counter of sample 0
};

// A half-open range [begin, end) of blocks or rows.
struct Range {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

// The part of the backward pass of one head of keys that a call computes: d_k and d_v of `key_blocks`, d_q of
// `query_blocks`, which count the blocks of all heads of queries of its group, one head after the other. `fused` (both
// ranges complete) computes the scores once for both: 5 products instead of 7.
struct GradPart {
  bool fused = false;
  Range key_blocks, query_blocks;
};

// The functions of one implementation. `head` counts (sample, head of queries) pairs, `kv_head` (sample, head of keys)
// pairs. `scratch` belongs to the calling thread and is 64-byte aligned.
struct Implementation {
  int64_t forward_query_block;     // rows in a query block of the forward pass
  int64_t query_block, key_block;  // rows in a query block and a key block of the backward pass
  int64_t (*forward_bytes)(const AttentionShape&);  // scratch bytes of one thread
  int64_t (*backward_bytes)(const AttentionShape&);
  void (*forward)(const AttentionShape&, const Operands&, int64_t head, Range query_blocks,
                  std::byte* scratch);
  void (*backward)(const AttentionShape&, const Operands&, int64_t kv_head, const GradPart&,
                   std::byte* scratch);
};

constexpr int64_t divide_up(int64_t n, int64_t by) {
  return (n + by - 1) / by;
}
constexpr int64_t round_up(int64_t n, int64_t to) {
  return divide_up(n, to) * to;
}

// Lays out arrays one after the other in a thread's scratch memory, each 64-byte aligned. With a null base
// it only counts bytes, so sizes and addresses come from the same lines of code.
class ScratchLayout {
 public:
  explicit ScratchLayout(std::byte* base) : base_(base) {}
  // Returns the address of the next array, of n elements.
  template <class T>
  T* add(int64_t n) {
    std::byte* at = base_ ? base_ + bytes_ : nullptr;
    bytes_ += round_up(n * static_cast<int64_t>(sizeof(T)), 64);
    return reinterpret_cast<T*>(at);
  }
  int64_t bytes() const { return bytes_; }

 private:
  std::byte* base_;
  int64_t bytes_ = 0;
};

// Returns the bytes of a Scratch, a struct whose constructor adds its arrays to a layout.
template <class Scratch>
int64_t bytes_of(const AttentionShape& shape) {
  ScratchLayout layout(nullptr);
  Scratch(shape, layout);
  return layout.bytes();
}

// Returns the address of element i of an array of the run dtype.
inline const void* element(const void* data, int64_t i, DType dtype) {
  return static_cast<const std::byte*>(data) + i * size_of(dtype);
}
inline void* element(void* data, int64_t i, DType dtype) {
  return static_cast<std::byte*>(data) + i * size_of(dtype);
}

// Asks for a row of the next head, `size` elements that lie behind element i of this one's, to read or to write it. The rows
// of a head are pages apart, so that nothing else asks for them.
template <bool kWrite>
inline void fetch_next_head(const void* data, int64_t i, int64_t size, DType dtype) {
  const auto* const row = static_cast<const std::byte*>(element(data, i + size, dtype));
  for (int64_t at = 0; at < size * size_of(dtype); at += 64)
    __builtin_prefetch(row + at, kWrite, 2);
}

// Where the operands of one (sample, head of queries) pair begin, in elements.
struct HeadOffsets {
  int64_t sample, h;
  int64_t q;      // of the first q, or d_q
  int64_t kv;     // of the first k, v, d_k or d_v of the head that h sees
  int64_t y;      // of the first y
  int64_t lse;    // of the first lse
  uint64_t mask;  // dropout element of (query 0, key 0)

  HeadOffsets(const AttentionShape& shape, int64_t head)
      : sample(head / shape.heads),
        h(head % shape.heads),
        q(sample * shape.seq * shape.q_stride() + h * shape.head_size),
        kv(sample * shape.seq * shape.kv_stride() + h / shape.group() * shape.head_size),
        y(sample * shape.seq * shape.channels() + h * shape.head_size),
        lse(head * shape.seq),
        mask(static_cast<uint64_t>(shape.first_head + h) *
             static_cast<uint64_t>(shape.seq * shape.seq)) {}
};

// Returns the keys that the queries of a sample see.
inline SeenKeys seen_keys(const AttentionShape& shape, const Operands& o, int64_t sample) {
  return {.seq = shape.seq,
          .causal = shape.causal,
          .window = shape.window,
          .documents = o.documents != nullptr ? o.documents + sample * shape.seq : nullptr};
}

// Returns the part of `blocks`, which count the blocks of all heads of queries of a group, that is of head `member`. A head
// has `per_head` blocks.
inline Range blocks_of_member(Range blocks, int64_t member, int64_t per_head) {
  const int64_t before = member * per_head;
  const Range mine{std::clamp<int64_t>(blocks.begin - before, 0, per_head),
                   std::clamp<int64_t>(blocks.end - before, 0, per_head)};
  return mine.empty() ? Range{} : mine;
}

// The rows of sums of d_k and d_v that a thread holds: those of one key block, or of all where several heads of queries
// add to them in turn.
inline int64_t key_sum_rows(const AttentionShape& shape, int64_t key_block) {
  return shape.group() == 1 ? key_block : round_up(shape.seq, key_block);
}

// A request for the dropout mask of queries [query, query + rows) by keys [key, key + columns) of one head.
// `bits` has `bits_stride` words a row.
inline MaskRows mask_of(const AttentionShape& shape, const Operands& o, const HeadOffsets& at,
                        int64_t query, int64_t rows, int64_t key, int64_t columns, uint64_t* bits,
                        int64_t bits_stride) {
  return {.key = o.key,
          .sample = o.first_sample + static_cast<uint64_t>(at.sample),
          .threshold = shape.drop_threshold,
          .first_element = at.mask + static_cast<uint64_t>(query * shape.seq + key),
          .row_stride = shape.seq,
          .rows = rows,
          .columns = columns,
          .bits = bits,
          .bits_stride = bits_stride};
}

}  // namespace dstrain::attention
