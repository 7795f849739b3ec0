// The sizes of an attention op and where its queries, keys and values lie, read from the spec of its kernel: the same on
// every device.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>

#include "runtime/core/philox.h"
#include "runtime/ir/kernel.h"

namespace dstrain::attention {

struct AttentionShape {
  DType dtype = DType::f32;
  int64_t batch = 0, heads = 0, seq = 0, head_size = 0;  // B, H, T, D; heads of queries
  int64_t kv_heads = 0;    // heads of keys and of values; they divide H
  int64_t first_head = 0;  // the model's head that head 0 of queries is, in dropout's masks alone
  bool causal = true;      // false: each query sees all keys
  int64_t window = 0;      // the most keys that a query sees: 1 to T
  double divisor = 1;      // scores are divided by it
  // Above 0: the most that a product of a query and a key may be, softcap * divisor. The product p becomes
  // limit * tanh(p / limit) before it is divided. 0: no limit.
  double limit = 0;
  bool packed = false;          // q, k and v are one tensor
  bool documents = false;       // queries see keys of their own document alone
  uint32_t drop_threshold = 0;  // 0: no dropout
  float drop_scale = 1;         // factor of kept weights

  int64_t channels() const { return heads * head_size; }  // of q, y and their gradients
  int64_t kv_channels() const { return kv_heads * head_size; }
  // The heads of queries that one head of keys and values serves.
  int64_t group() const { return heads / kv_heads; }
  // Elements from one row to the next, of q and of k and v.
  int64_t q_stride() const { return packed ? channels() + 2 * kv_channels() : channels(); }
  int64_t kv_stride() const { return packed ? q_stride() : kv_channels(); }
  // log2(e) / divisor: a score times this is an exponent of two.
  float exponent_scale() const { return static_cast<float>(1.4426950408889634 / divisor); }

  // The number of (query, key) pairs of queries [begin, end) of a head and the keys that they see.
  int64_t seen_pairs(int64_t begin, int64_t end) const {
    if (!causal) return (end - begin) * seq;
    const auto until = [this](int64_t n) {
      const int64_t growing = n < window ? n : window;
      return growing * (growing + 1) / 2 + (n - growing) * window;
    };
    return until(end) - until(begin);
  }
};

// Returns the shape that a spec of attention or attention_grad describes. Throws InternalError for other ops,
// dtypes and shapes.
AttentionShape shape_of(const KernelSpec& spec);

// The addresses of q, k and v, or of their gradients.
struct HeadTensors {
  void *q = nullptr, *k = nullptr, *v = nullptr;
};

// Returns the addresses that `operands` have from index `first` on: of one tensor if the shape is packed, else of three.
HeadTensors head_tensors(const AttentionShape& shape, std::span<const Tensor> operands,
                         size_t first);

// The operands of a run of attention_grad beside q, k and v: their indices among the inputs are those of d_y = 0, and of
// y and lse after q, k and v.
inline size_t result_index(const AttentionShape& shape) {
  return shape.packed ? 2 : 4;
}

// Returns the documents of a run of attention, which has q, k and v as inputs from index `first` = 0 on, or of
// attention_grad (1): its last input. Null if it has none.
const int32_t* documents_of(const AttentionShape& shape, std::span<const Tensor> inputs,
                            size_t first);

// The keys that each query of a sample sees: from the first one to the end, which both do not fall from one query to the
// next.
struct SeenKeys {
  int64_t seq;  // T
  bool causal;
  int64_t window;
  const int32_t* documents;  // of the sample; null: it is one document

  int64_t first(int64_t query) const {
    const int64_t first = query + 1 > window ? query + 1 - window : 0;
    return documents != nullptr && documents[query] > first ? documents[query] : first;
  }
  int64_t end(int64_t query) const { return causal ? query + 1 : seq; }
  // Returns the first query that sees a key.
  int64_t first_query(int64_t key) const { return causal ? key : 0; }
};

}  // namespace dstrain::attention
