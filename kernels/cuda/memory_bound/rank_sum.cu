// The sum of the ranks' values in rank order (RankSum). Memory traffic of N ranks, per element of s bytes: (N + 1) s.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kAtATime = 4;  // ranks whose packs a thread loads before it adds the first

template <class T, int N>
struct RankSumOf {
  const T* others;
  int64_t stride;
  const T* mine;
  int own, ranks;
  T* out;

  __device__ const T* source(int r) const {
    return r == own ? mine : others + (r < own ? r : r - 1) * stride;
  }
  __device__ void operator()(int64_t at, int64_t n) const {
    float sum[N];
    load(source(0), at, n, sum);
    for (int first = 1; first < ranks; first += kAtATime) {
      float v[kAtATime][N];
#pragma unroll
      for (int i = 0; i < kAtATime; ++i)
        if (first + i < ranks) load(source(first + i), at, n, v[i]);
#pragma unroll
      for (int i = 0; i < kAtATime; ++i)
        if (first + i < ranks) {
#pragma unroll
          for (int k = 0; k < N; ++k) sum[k] += v[i][k];
        }
    }
    store(sum, out, at, n);
  }
};

class Sum final : public RankSum {
 public:
  void add(DType dtype, const RankSources& s, void* out, int64_t n, Stream& stream) const override {
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      constexpr int kN = pack_of(sizeof(T));
      T* to = static_cast<T*>(out);
      const LaunchContext context{static_cast<cudaStream_t>(stream.native())};
      launch_flat<kN>(context, "rank_sum", to, n,
                      RankSumOf<T, kN>{static_cast<const T*>(s.others), s.stride,
                                       static_cast<const T*>(s.mine), s.own, s.ranks, to});
    });
  }
};

}  // namespace

std::unique_ptr<RankSum> make_rank_sum() {
  return std::make_unique<Sum>();
}

}  // namespace dstrain::DSTRAIN_BACKEND
