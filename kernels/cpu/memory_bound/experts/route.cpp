// route, route_grad and group_rows. A thread has whole rows (kernels/router.h). Minimum memory traffic: the logits; group_rows
// reads its few integers twice, by one thread.
#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cpu/memory_bound/general/with_floats.h"
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "kernels/expert_groups.h"
#include "kernels/router.h"

namespace dstrain::simd {
namespace {

template <class T>
struct LogitRow {
  const T* logits;

  float logit(int64_t expert) const { return to_float(logits[expert]); }
  static float exp(float x) { return std::exp(x); }
};

float rounded(DType dtype, float x) {
  float result = x;
  with_floats(dtype, [&](auto t) { result = to_float(from_float<decltype(t)>(x)); });
  return result;
}

int64_t grain_of(const Router& router) {
  // An exponential takes about as long as moving 64 bytes.
  return row_grain(64 * router.experts);
}

}  // namespace

std::unique_ptr<Kernel> make_route(const KernelSpec& spec) {
  const auto attrs = attrs_as<RouteAttrs>(spec.attrs);
  const Router router(attrs, columns(spec.in[0]), columns(spec.out[1]));
  return kernel_of([threads = spec.threads, router, rounds = attrs.rounded,
                    dtype = spec.in[0].dtype, r = rows(spec.in[0])](const KernelCall& call) {
    Router of = router;
    of.bias = data<const float>(call.in, 1);
    with_floats(dtype, [&](auto t) {
      using T = decltype(t);
      const auto* logits = data<const T>(call.in, 0);
      auto* const weights = data<float>(call.out, 0);
      auto* const chosen = data<int32_t>(call.out, 1);
      parallel_ranges(threads, r, grain_of(of), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          RouterRow<LogitRow<T>>{of, {logits + i * of.experts}}.route(weights + i * of.slots,
                                                                      chosen + i * of.slots);
        for (int64_t i = begin * of.slots; rounds && i < end * of.slots; ++i)
          weights[i] = rounded(dtype, weights[i]);
      });
    });
  });
}

std::unique_ptr<Kernel> make_route_grad(const KernelSpec& spec) {
  const Router router(attrs_as<RouteAttrs>(spec.attrs), columns(spec.in[1]), columns(spec.in[2]));
  return kernel_of([threads = spec.threads, router, dtype = spec.in[1].dtype,
                    r = rows(spec.in[1])](const KernelCall& call) {
    with_floats(dtype, [&](auto t) {
      using T = decltype(t);
      const auto* const d_weights = data<const float>(call.in, 0);
      const auto* const logits = data<const T>(call.in, 1);
      const auto* const chosen = data<const int32_t>(call.in, 2);
      auto* const d_logits = data<T>(call.out, 0);
      parallel_ranges(threads, r, grain_of(router), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          T* const to = d_logits + i * router.experts;
          RouterRow<LogitRow<T>>{router, {logits + i * router.experts}}.differentiate(
              d_weights + i * router.slots, chosen + i * router.slots,
              [to](int64_t expert, float d) { to[expert] = from_float<T>(d); });
        }
      });
    });
  });
}

std::unique_ptr<Kernel> make_group_rows(const KernelSpec& spec) {
  return kernel_of(
      [n = elements(spec.in[0]), experts = elements(spec.out[1])](const KernelCall& call) {
        const auto* const chosen = data<const int32_t>(call.in, 0);
        auto* const places = data<int32_t>(call.out, 0);
        auto* const ends = data<int32_t>(call.out, 1);
        std::fill_n(ends, experts, 0);
        for (int64_t i = 0; i < n; ++i) ++ends[chosen[i]];
        int32_t begin = 0;
        for (int64_t e = 0; e < experts; ++e) begin += std::exchange(ends[e], begin);
        for (int64_t i = 0; i < n; ++i) places[i] = ends[chosen[i]]++;
      });
}

std::unique_ptr<Kernel> make_expert_ends(const KernelSpec& spec) {
  const auto attrs = attrs_as<ExpertEndsAttrs>(spec.attrs);
  return kernel_of([attrs, n = elements(spec.out[0]),
                    experts = elements(spec.in[0]) / attrs.ranks](const KernelCall& call) {
    const ExpertGroups groups{data<const int32_t>(call.in, 0), attrs.ranks, attrs.rank, experts};
    auto* const ends = data<int32_t>(call.out, 0);
    auto* const counts = data<int32_t>(call.out, 1);
    for (int64_t g = 0; g < n; ++g) ends[g] = groups.end(g);
    for (int64_t i = 0; i < attrs.ranks * attrs.ranks; ++i)
      counts[i] = groups.count(i / attrs.ranks, i % attrs.ranks);
  });
}

}  // namespace dstrain::simd
