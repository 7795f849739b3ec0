// route, route_grad and group_rows. A thread has a row of logits (kernels/router.h), and a block of group_rows an expert, whose
// choices it counts and numbers in order. Minimum memory traffic: the logits; group_rows reads its integers once for each expert,
// from the L2 cache.
#include <algorithm>

#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/expert_groups.h"
#include "kernels/router.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

template <class T>
struct LogitRow {
  const T* logits;

  __device__ float logit(int64_t expert) const { return widen(logits[expert]); }
  __device__ static float exp(float x) { return expf(x); }
};

template <class T>
struct RouteRows {
  Router router;
  bool rounds;
  const T* logits;
  float* weights;
  int32_t* chosen;

  __device__ void operator()(int64_t row, int64_t n) const {
    if (row < 0 || row >= n) return;
    float* const of_row = weights + row * router.slots;
    RouterRow<LogitRow<T>>{router, {logits + row * router.experts}}.route(
        of_row, chosen + row * router.slots);
    for (int64_t s = 0; rounds && s < router.slots; ++s) of_row[s] = widen(narrow<T>(of_row[s]));
  }
};

template <class T>
struct WriteLogit {
  T* to;
  __device__ void operator()(int64_t expert, float d) const { to[expert] = narrow<T>(d); }
};

template <class T>
struct RouteGrads {
  Router router;
  const float* d_weights;
  const T* logits;
  const int32_t* chosen;
  T* d_logits;

  __device__ void operator()(int64_t row, int64_t n) const {
    if (row < 0 || row >= n) return;
    RouterRow<LogitRow<T>>{router, {logits + row * router.experts}}.differentiate(
        d_weights + row * router.slots, chosen + row * router.slots,
        WriteLogit<T>{d_logits + row * router.experts});
  }
};

constexpr int kGroupThreads = 256, kGroupWarps = kGroupThreads / 32;

// Returns the sum of `own` over the threads of the block that come before this one; `all`: set to that of all.
__device__ int sum_before(int own, int& all) {
  __shared__ int of_warp[kGroupWarps];
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  int sum = own;
#pragma unroll
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(~0u, sum, step);
    if (lane >= step) sum += other;
  }
  __syncthreads();  // threads may still read the sums before
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  all = 0;
  int before = 0;
#pragma unroll
  for (int w = 0; w < kGroupWarps; ++w) {
    if (w == warp) before = all;
    all += of_warp[w];
  }
  return before + sum - own;
}

// An element is the end of a group, and the count of two ranks.
struct ExpertEnds {
  ExpertGroups groups;
  int64_t ends;
  int32_t *end, *count;
  __device__ void operator()(int64_t at, int64_t) const {
    if (at < 0) return;
    if (at < ends) end[at] = groups.end(at);
    if (at < groups.ranks * groups.ranks)
      count[at] = groups.count(at / groups.ranks, at % groups.ranks);
  }
};

__global__ void __launch_bounds__(kGroupThreads)
    group_rows_kernel(const int32_t* chosen, int64_t n, int32_t* places, int32_t* ends) {
  const auto expert = static_cast<int32_t>(blockIdx.x);
  int less = 0, next = 0, all = 0;
  for (int64_t i = threadIdx.x; i < n; i += kGroupThreads) less += chosen[i] < expert ? 1 : 0;
  sum_before(less, next);
  for (int64_t first = 0; first < n; first += kGroupThreads) {
    const int64_t i = first + threadIdx.x;
    const bool own = i < n && chosen[i] == expert;
    const int before = sum_before(own ? 1 : 0, all);
    if (own) places[i] = next + before;
    next += all;
  }
  if (threadIdx.x == 0) ends[expert] = next;
}

}  // namespace

std::unique_ptr<Kernel> make_route(const KernelSpec& spec, const LaunchContext& context) {
  const auto attrs = attrs_as<RouteAttrs>(spec.attrs);
  const Router router(attrs, columns(spec.in[0]), columns(spec.out[1]));
  return kernel_of([context, router, rounds = attrs.rounded, dtype = spec.in[0].dtype,
                    r = rows(spec.in[0])](const KernelCall& call) {
    Router of = router;
    of.bias = data<const float>(call.in, 1);
    const int32_t* const anchor = nullptr;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch_flat<1>(context, "route", anchor, r,
                     RouteRows<T>{of, rounds, data<const T>(call.in, 0), data<float>(call.out, 0),
                                  data<int32_t>(call.out, 1)});
    });
  });
}

std::unique_ptr<Kernel> make_route_grad(const KernelSpec& spec, const LaunchContext& context) {
  const Router router(attrs_as<RouteAttrs>(spec.attrs), columns(spec.in[1]), columns(spec.in[2]));
  return kernel_of([context, router, dtype = spec.in[1].dtype,
                    r = rows(spec.in[1])](const KernelCall& call) {
    const int32_t* const anchor = nullptr;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch_flat<1>(context, "route_grad", anchor, r,
                     RouteGrads<T>{router, data<const float>(call.in, 0), data<const T>(call.in, 1),
                                   data<const int32_t>(call.in, 2), data<T>(call.out, 0)});
    });
  });
}

std::unique_ptr<Kernel> make_group_rows(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of(
      [context, n = elements(spec.in[0]), experts = elements(spec.out[1])](const KernelCall& call) {
        launch(context.stream, "group_rows", Grid{static_cast<unsigned>(experts), kGroupThreads},
               group_rows_kernel, data<const int32_t>(call.in, 0), n, data<int32_t>(call.out, 0),
               data<int32_t>(call.out, 1));
      });
}

std::unique_ptr<Kernel> make_expert_ends(const KernelSpec& spec, const LaunchContext& context) {
  const auto attrs = attrs_as<ExpertEndsAttrs>(spec.attrs);
  return kernel_of([context, attrs, n = elements(spec.out[0]),
                    experts = elements(spec.in[0]) / attrs.ranks](const KernelCall& call) {
    const ExpertGroups groups{data<const int32_t>(call.in, 0), attrs.ranks, attrs.rank, experts};
    const int32_t* const anchor = nullptr;
    launch_flat<1>(context, "expert_ends", anchor, std::max(n, attrs.ranks * attrs.ranks),
                   ExpertEnds{groups, n, data<int32_t>(call.out, 0), data<int32_t>(call.out, 1)});
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
