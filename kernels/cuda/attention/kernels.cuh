// The launches of attention, enqueued on the context's stream in order. launch_forward, launch_query_gradient and
// launch_key_gradients are for 16-bit heads of up to 128 elements, launch_plain_* for all heads.
#pragma once

#include "kernels/cuda/attention/arguments.cuh"
#include "kernels/cuda/attention/rows.cuh"

namespace dstrain::DSTRAIN_BACKEND {

inline constexpr int kWidestHead = 128;  // the largest head on tensor cores

// The grid has the rows of a head along x, `heads` heads along y, samples along z.
template <int kRows>
Grid grid_of(const AttentionArguments& a, int heads, int64_t samples, size_t shared = 0) {
  return {dim3(static_cast<unsigned>((a.seq + kRows - 1) / kRows), static_cast<unsigned>(heads),
               static_cast<unsigned>(samples)),
          dim3(kThreads), shared};
}

// Sets first_keys to the first keys that a lane's rows see: rows g (half 0) and g + 8 (half 1) of each row tile, of which the
// first begins at `row`.
template <int kRowTiles>
__device__ __forceinline__ void find_first_keys(int (&first_keys)[kRowTiles][2], const Head& head,
                                                int row, const Lane& lane) {
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half)
      first_keys[r][half] = head.first_key(row + r * kRowStep + lane.g + half * 8);
}

// The scores that a kernel is compiled for: those up to the diagonal; those of a window, of documents or of heads of keys
// that several heads of queries share; or all.
enum class Scores : uint8_t { causal, general, all };

// Calls f(vector, dropout, scores) with constants, for kernels that are compiled for each: whether rows are read and
// written 16 bytes at a time, whether masks are computed, and which scores there are. `shared_keys`: whether heads of keys
// that are shared matter. Rows of other sizes, which few models have, always take the code of masks, and of the two
// kinds of causal scores that of `general`.
template <class F>
void with_variant(const AttentionArguments& a, bool shared_keys, const F& f) {
  constexpr std::true_type kYes;
  constexpr std::false_type kNo;
  const auto with_scores = [&](auto scores) {
    if (!a.vector) return f(kNo, kYes, scores);
    a.drop_threshold != 0 ? f(kYes, kYes, scores) : f(kYes, kNo, scores);
  };
  const bool general = a.window < a.seq || a.documents != nullptr || (shared_keys && a.group > 1);
  if (!a.causal) return with_scores(std::integral_constant<Scores, Scores::all>());
  if (general || !a.vector) return with_scores(std::integral_constant<Scores, Scores::general>());
  with_scores(std::integral_constant<Scores, Scores::causal>());
}

template <class T>
void launch_forward(const AttentionArguments& a, int64_t samples, const LaunchContext& context);

// Writes a.delta: sum(d_y y) / drop_scale of every row of every head.
template <class T>
void launch_delta(const AttentionArguments& a, int64_t samples, const LaunchContext& context);
// Writes a.end_queries.
void launch_end_queries(const AttentionArguments& a, int64_t samples, const LaunchContext& context);
// Write d_q, d_k and d_v. launch_delta must come first, and launch_end_queries where there are documents.
template <class T>
void launch_query_gradient(const AttentionArguments& a, int64_t samples,
                           const LaunchContext& context);
template <class T>
void launch_key_gradients(const AttentionArguments& a, int64_t samples,
                          const LaunchContext& context);

template <class T>
void launch_plain_forward(const AttentionArguments& a, int64_t samples,
                          const LaunchContext& context);
template <class T>
void launch_plain_gradients(const AttentionArguments& a, int64_t samples,
                            const LaunchContext& context);

}  // namespace dstrain::DSTRAIN_BACKEND
