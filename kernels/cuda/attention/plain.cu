// Attention without tensor cores, for f32, for heads of more than 128 elements and for scores with a limit; it works for any
// shape and dtype.
// Sums are f32 multiply-adds. A warp owns one row (a query, or a key in the pass of d_k and d_v) and loops over the rows
// it is combined with, 32 at a time: first each lane computes the score of one of them, then each lane sums some
// elements of the head.
//
// Lower bound, per head of T rows: the FLOPs of the tensor-core kernels, at the rate of ordinary multiply-adds.
// The operands of scores are read with a stride, from the cache.
#include "kernels/cuda/attention/kernels.cuh"
#include "kernels/cuda/attention/rows.cuh"
#include "kernels/cuda/memory_bound/access.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

inline constexpr int kLaneSums =
    4;  // elements that a lane sums in one loop over the rows: 128 per warp

// The 32 weights of a step, shared among the lanes of a warp.
struct StepWeights {
  float weights[kWarps][32], d_scores[kWarps][32];
};

template <class T>
__device__ float dot(const T* a, const T* b, int n) {
  float sum = 0;
  for (int d = 0; d < n; ++d) sum += widen(a[d]) * widen(b[d]);
  return sum;
}

// Returns a product of a query and a key as the softmax takes it.
__device__ __forceinline__ float limited(float product, float limit) {
  return limit > 0 ? limit * tanhf(product / limit) : product;
}

__device__ __forceinline__ float warp_max(float x) {
#pragma unroll
  for (int m = 16; m > 0; m /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, m));
  return x;
}
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int m = 16; m > 0; m /= 2) x += __shfl_xor_sync(~0u, x, m);
  return x;
}

// sums[i] += sum over the step's rows of weights[c] * rows[first + c][lane + 32 i].
template <class T>
__device__ __forceinline__ void add_rows(float (&sums)[kLaneSums], const float* weights,
                                         const HeadRows<const T>& rows, int64_t first, int count,
                                         int from, int lane) {
  for (int c = 0; c < count; ++c) {
    const T* row = rows.at + (first + c) * rows.stride;
#pragma unroll
    for (int i = 0; i < kLaneSums; ++i) {
      const int d = from + lane + 32 * i;
      if (d < rows.width) sums[i] += weights[c] * widen(row[d]);
    }
  }
}

template <class T>
__device__ __forceinline__ void write_sums(const float (&sums)[kLaneSums], float factor,
                                           const HeadRows<T>& to, int64_t row, int from, int lane) {
#pragma unroll
  for (int i = 0; i < kLaneSums; ++i) {
    const int d = from + lane + 32 * i;
    if (d < to.width) to.at[row * to.stride + d] = narrow<T>(sums[i] * factor);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads, 4) plain_forward_kernel(AttentionArguments a) {
  __shared__ StepWeights step;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  // Rows have 32-bit numbers (attention.cu).
  const int row = static_cast<int>(blockIdx.x) * kWarps + warp;
  if (row >= a.seq) return;
  const Head head = query_head_of_block(a);
  const HeadRows<const T> queries = head.of_queries(static_cast<const T*>(a.q)),
                          keys = head.of_keys(static_cast<const T*>(a.k)),
                          values = head.of_keys(static_cast<const T*>(a.v));
  const DropoutSource dropout = head.dropout();
  const T* const query = queries.at + int64_t{row} * queries.stride;
  float* const weights = step.weights[warp];
  const int begin = head.first_key(row), end = head.end_key(row);
  // The exponent to base 2; -infinity if the query does not see the key.
  const auto exponent = [&](int key) {
    return key >= end
               ? -INFINITY
               : limited(dot(query, keys.at + int64_t{key} * keys.stride, a.head_size), a.limit) *
                     a.exponent_scale;
  };

  float max = -INFINITY, total = 0;  // total: this lane's part
  for (int first = begin; first < end; first += 32) {
    const float e = exponent(first + lane);
    const float new_max = fmaxf(max, warp_max(e));
    total = total * exp2_of(max - new_max) + exp2_of(e - new_max);
    max = new_max;
  }
  total = warp_sum(total);
  if (lane == 0) a.lse[head.statistics() + row] = (max + log2f(total)) * kLn2;

  for (int from = 0; from < a.head_size; from += 32 * kLaneSums) {
    float sums[kLaneSums] = {};
    for (int first = begin; first < end; first += 32) {
      const int key = first + lane;
      float weight = exp2_of(exponent(key) - max);
      if (dropout.threshold != 0 && !dropout.keeps(dropout.element(row, key))) weight = 0;
      __syncwarp();
      weights[lane] = weight;
      __syncwarp();
      const int left = end - first;
      add_rows(sums, weights, values, first, left < 32 ? left : 32, from, lane);
    }
    write_sums(sums, a.drop_scale / total, head.rows(static_cast<T*>(a.y)), row, from, lane);
  }
}

// Computes d_q (kKeys = false) or d_k and d_v (true) of one row; query_gradient.cu has the formulas. d_k and d_v are sums
// over the heads of queries that the head of keys serves, one after the other.
template <class T, bool kKeys, bool kDocuments>
__global__ void __launch_bounds__(kThreads, kKeys || kDocuments ? 4 : 0)
    plain_gradient_kernel(AttentionArguments a) {
  __shared__ StepWeights step;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  if (row >= a.seq) return;
  // The rows that this one is combined with. There are less than 2^31 (attention.cu).
  const int64_t first_key = row + 1 - a.window, end_query = row + a.window;
  auto begin = static_cast<int>(kKeys ? row : first_key > 0 ? first_key : 0);
  auto end = static_cast<int>(!kKeys ? row + 1 : end_query < a.seq ? end_query : a.seq);
  if (!a.causal) {
    begin = 0;
    end = static_cast<int>(a.seq);
  }
  if constexpr (kDocuments && kKeys)
    end = min(end, static_cast<int>(a.end_queries[blockIdx.z * a.seq + row]));
  if constexpr (kDocuments && !kKeys)
    begin = max(begin, static_cast<int>(a.documents[blockIdx.z * a.seq + row]));
  const int members = kKeys ? a.group : 1;
  const float factor = a.drop_scale * a.score_scale;

  for (int from = 0; from < a.head_size; from += 32 * kLaneSums) {
    float d_row[kLaneSums] = {}, d_value[kLaneSums] = {};
#pragma unroll 1
    for (int member = 0; member < members; ++member) {
      const Head head = kKeys ? member_head_of_block(a, member) : query_head_of_block(a);
      const HeadRows<const T> queries = head.of_queries(static_cast<const T*>(a.q)),
                              keys = head.of_keys(static_cast<const T*>(a.k)),
                              values = head.of_keys(static_cast<const T*>(a.v)),
                              d_y = head.rows(static_cast<const T*>(a.d_y));
      const DropoutSource dropout = head.dropout();
      const float* const lse = a.lse + head.statistics();
      const float* const delta = a.delta + head.statistics();
#pragma unroll 1
      for (int first = begin; first < end; first += 32) {
        const int64_t other = first + lane;
        const int64_t i = kKeys ? other : row, j = kKeys ? row : other;
        float weight = 0, d_score = 0;
        if (other < end) {
          const float score =
              limited(dot(queries.at + i * queries.stride, keys.at + j * keys.stride, a.head_size),
                      a.limit);
          weight = exp2_of(score * a.exponent_scale - lse[i] * kLog2e);
          const bool kept = dropout.threshold == 0 || dropout.keeps(dropout.element(i, j));
          const float d_weight =
              kept ? dot(d_y.at + i * d_y.stride, values.at + j * values.stride, a.head_size) : 0;
          d_score = weight * (d_weight - delta[i]);
          if (a.limit > 0) d_score *= 1 - (score / a.limit) * (score / a.limit);
          if (!kept) weight = 0;
        }
        __syncwarp();
        step.weights[warp][lane] = weight;
        step.d_scores[warp][lane] = d_score;
        __syncwarp();
        const int count = end - first < 32 ? end - first : 32;
        add_rows(d_row, step.d_scores[warp], kKeys ? queries : keys, first, count, from, lane);
        if constexpr (kKeys) add_rows(d_value, step.weights[warp], d_y, first, count, from, lane);
      }
    }
    if constexpr (kKeys) {
      const Head head = member_head_of_block(a, 0);
      write_sums(d_row, factor, head.of_keys(static_cast<T*>(a.d_k)), row, from, lane);
      write_sums(d_value, a.drop_scale, head.of_keys(static_cast<T*>(a.d_v)), row, from, lane);
    } else {
      const Head head = query_head_of_block(a);
      write_sums(d_row, factor, head.of_queries(static_cast<T*>(a.d_q)), row, from, lane);
    }
  }
}

}  // namespace

template <class T>
void launch_plain_forward(const AttentionArguments& a, int64_t samples,
                          const LaunchContext& context) {
  launch(context.stream, "plain attention", grid_of<kWarps>(a, a.heads, samples),
         plain_forward_kernel<T>, a);
}

template <class T>
void launch_plain_gradients(const AttentionArguments& a, int64_t samples,
                            const LaunchContext& context) {
  with_flag(a.documents != nullptr, [&](auto documents) {
    constexpr bool kDocuments = decltype(documents)::value;
    launch(context.stream, "plain attention d_q", grid_of<kWarps>(a, a.heads, samples),
           plain_gradient_kernel<T, false, kDocuments>, a);
    launch(context.stream, "plain attention d_k, d_v", grid_of<kWarps>(a, a.kv_heads, samples),
           plain_gradient_kernel<T, true, kDocuments>, a);
  });
}

#define DSTRAIN_ATTENTION_OF(T)                                                                    \
  template void launch_plain_forward<T>(const AttentionArguments&, int64_t, const LaunchContext&); \
  template void launch_plain_gradients<T>(const AttentionArguments&, int64_t, const LaunchContext&);
DSTRAIN_ATTENTION_OF(float)
DSTRAIN_ATTENTION_OF(bf16)
DSTRAIN_ATTENTION_OF(f16)
#undef DSTRAIN_ATTENTION_OF

}  // namespace dstrain::DSTRAIN_BACKEND
