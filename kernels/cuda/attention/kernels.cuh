// The launches of attention, enqueued on the context's stream in order. launch_forward, launch_query_gradient and
// launch_key_gradients are for 16-bit heads of up to 128 elements, launch_plain_* for all heads.
#pragma once

#include "kernels/cuda/attention/arguments.cuh"

namespace dstrain::DSTRAIN_BACKEND {

inline constexpr int kWidestHead = 128;  // the largest head on tensor cores

// The grid has the rows of a head along x, heads along y, samples along z.
template <int kRows>
Grid grid_of(const AttentionArguments& a, int64_t samples, size_t shared = 0) {
  return {dim3(static_cast<unsigned>((a.seq + kRows - 1) / kRows), static_cast<unsigned>(a.heads),
               static_cast<unsigned>(samples)),
          dim3(kThreads), shared};
}

// Calls f(vector, dropout) with constants, for kernels that are compiled for both: whether rows are read and written
// 16 bytes at a time, and whether masks are computed. Rows of other sizes, which few models have, always compute masks.
template <class F>
void with_variant(const AttentionArguments& a, const F& f) {
  if (!a.vector)
    f(std::false_type(), std::true_type());
  else if (a.drop_threshold != 0)
    f(std::true_type(), std::true_type());
  else
    f(std::true_type(), std::false_type());
}

template <class T>
void launch_forward(const AttentionArguments& a, int64_t samples, const LaunchContext& context);

// Writes a.delta: sum(d_y y) / drop_scale of every row of every head.
template <class T>
void launch_delta(const AttentionArguments& a, int64_t samples, const LaunchContext& context);
// Write d_q, d_k and d_v. launch_delta must come first.
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
