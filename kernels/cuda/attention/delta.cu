// delta = sum(d_y y) / drop_scale of every row of every head, which the passes of d_q and of d_k and d_v read; and with
// documents the ends of these, which the pass of d_k and d_v reads.
// d_y and y are (samples T, heads D), so a row of a head is a stretch of D neighbouring elements. A group of lanes, a
// power of two, takes a stretch, 8 elements a lane.
// Minimum memory traffic in bytes, s bytes per element: 2 s R C.
#include <bit>

#include "kernels/cuda/attention/kernels.cuh"
#include "kernels/cuda/memory_bound/access.cuh"
#include "runtime/core/error.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kPack = 8;  // elements of a lane

// The stretches that a group loads at a time.
template <bool kAligned>
constexpr int kAtOnce = kAligned ? 4 : 1;

// SASS <?*16, true>: threads 128, blocks 5, loads 8
template <class T, bool kAligned>
__global__ void __launch_bounds__(kThreads, 4)
    delta_kernel(AttentionArguments a, unsigned stretches, int lanes) {
  constexpr int kAhead = kAtOnce<kAligned>;
  const int lane = static_cast<int>(threadIdx.x) & (lanes - 1);
  const unsigned groups = kThreads / static_cast<unsigned>(lanes);
  const unsigned first = blockIdx.x * kAhead * groups + threadIdx.x / static_cast<unsigned>(lanes);
  const T *d_y = static_cast<const T*>(a.d_y), *y = static_cast<const T*>(a.y);
  float sums[kAhead] = {};
  // Heads of up to 256 elements need one round.
#pragma unroll 1
  for (int from = 0; from < a.head_size; from += kPack * lanes) {
    PackOf<kAligned, T, kPack> d_ys[kAhead], ys[kAhead];
    const int element = from + kPack * lane;
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      const int64_t stretch = first + static_cast<unsigned>(j) * groups;
      const int64_t begin = stretch * a.head_size;
      const int64_t end = stretch < stretches && element < a.head_size ? begin + a.head_size : 0;
      d_ys[j].load(d_y, begin + element, end);
      ys[j].load(y, begin + element, end);
    }
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      float g[kPack], v[kPack];
      d_ys[j].widen_to(g);
      ys[j].widen_to(v);
#pragma unroll
      for (int k = 0; k < kPack; ++k) sums[j] = fmaf(g[k], v[k], sums[j]);
    }
  }
#pragma unroll
  for (int j = 0; j < kAhead; ++j) {
    for (int m = lanes / 2; m > 0; m /= 2) sums[j] += __shfl_xor_sync(~0u, sums[j], m);
    const unsigned stretch = first + static_cast<unsigned>(j) * groups;
    if (lane != 0 || stretch >= stretches) continue;
    const auto heads = static_cast<unsigned>(a.heads), seq = static_cast<unsigned>(a.seq);
    const unsigned row = stretch / heads, head = stretch % heads;
    const int64_t of_head = static_cast<int64_t>(row / seq) * heads + head;
    a.delta[of_head * a.seq + row % seq] = sums[j] / a.drop_scale;
  }
}

// The end of a row's document is the first row behind it whose document begins behind it.
__global__ void __launch_bounds__(kThreads) end_queries_kernel(AttentionArguments a) {
  const int row = static_cast<int>(blockIdx.x) * kThreads + static_cast<int>(threadIdx.x);
  if (row >= a.seq) return;
  const int64_t sample = static_cast<int64_t>(blockIdx.y) * a.seq;
  const int32_t* const documents = a.documents + sample;
  int begin = row + 1, end = static_cast<int>(a.seq);
  while (begin < end) {
    const int middle = begin + (end - begin) / 2;
    if (documents[middle] > row)
      end = middle;
    else
      begin = middle + 1;
  }
  a.end_queries[sample + row] = end;
}

}  // namespace

void launch_end_queries(const AttentionArguments& a, int64_t samples,
                        const LaunchContext& context) {
  if (samples * a.seq == 0) return;
  const Grid grid{dim3(static_cast<unsigned>((a.seq + kThreads - 1) / kThreads),
                       static_cast<unsigned>(samples)),
                  dim3(kThreads)};
  launch(context.stream, "attention ends of documents", grid, end_queries_kernel, a);
}

template <class T>
void launch_delta(const AttentionArguments& a, int64_t samples, const LaunchContext& context) {
  const int64_t stretches = samples * a.seq * a.heads;
  check(stretches < int64_t{1} << 31, "attention_grad: {} rows of heads; a launch takes 2^31",
        stretches);
  if (stretches == 0) return;
  const unsigned packs = static_cast<unsigned>(a.head_size + kPack - 1) / kPack;
  const unsigned lanes = std::min(32u, std::bit_ceil(packs));
  const bool whole =
      whole_packs<kPack>(a.head_size, static_cast<const T*>(a.d_y), static_cast<const T*>(a.y));
  with_flag(whole, [&](auto aligned) {
    constexpr bool kAligned = decltype(aligned)::value;
    const int64_t of_block = int64_t{kThreads} / lanes * kAtOnce<kAligned>;
    const Grid grid{dim3(static_cast<unsigned>((stretches + of_block - 1) / of_block)),
                    dim3(kThreads)};
    launch(context.stream, "attention delta", grid, delta_kernel<T, kAligned>, a,
           static_cast<unsigned>(stretches), static_cast<int>(lanes));
  });
}
template void launch_delta<float>(const AttentionArguments&, int64_t, const LaunchContext&);
template void launch_delta<bf16>(const AttentionArguments&, int64_t, const LaunchContext&);
template void launch_delta<f16>(const AttentionArguments&, int64_t, const LaunchContext&);

}  // namespace dstrain::DSTRAIN_BACKEND
