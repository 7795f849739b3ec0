// The launches of attention. All are enqueued on the context's stream, in order; shapes and dtypes
// are the problem's. launch_forward and launch_gradients are for heads of up to 128 numbers of 16 bits,
// launch_plain_* for everything.
#pragma once

#include "kernels/cuda/attention/arguments.cuh"

namespace dstrain::DSTRAIN_BACKEND {

inline constexpr int kWidestHead = 128;  // on tensor cores

// Rows of a head along x, heads along y, samples along z.
template <int kRows>
Grid grid_of(const AttentionArguments& a, int64_t samples, size_t shared = 0) {
  return {dim3(static_cast<unsigned>((a.seq + kRows - 1) / kRows), static_cast<unsigned>(a.heads),
               static_cast<unsigned>(samples)),
          dim3(kThreads), shared};
}

template <class T>
void launch_forward(const AttentionArguments& a, int64_t samples, const LaunchContext& context);

// a.delta: sum(d_y y) / drop_scale of every row of every head.
template <class T>
void launch_delta(const AttentionArguments& a, int64_t samples, const LaunchContext& context);
// d_q, d_k and d_v; after launch_delta.
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
