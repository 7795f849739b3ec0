// gram_schmidt, random_factor, project_rows, project_columns, expand_factors, add_error and commit_state
// (runtime/ir/ops/low_rank.h has the order of their sums). Products and sums are rounded one by one, so all instruction
// sets give the same bits.
// Minimum memory traffic, bytes per element of the matrix: projections 4, random_factor 4, expand_factors 8 and 4 for
// the error, add_error 12, commit_state 8.
#include <cmath>
#include <cstring>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "runtime/core/philox.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/codecs/low_rank.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_LOW_RANK_ONCE
#define DSTRAIN_SIMD_LOW_RANK_ONCE
namespace dstrain::simd {
namespace {

constexpr int kRowChains = 32, kLengthChains = 256;
constexpr int64_t kRowBlock = 256, kColumnTile = 512, kProjectTile = 128;
// A row of gram_schmidt depends on those before it if no more than this share of its length is left.
constexpr double kDependent = 1e-6;

// A matrix (n, k) and its factors: p has `rank` rows of n, b has `rank` rows of k.
struct LowRank {
  int64_t n, k, rank;
};

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Adds chains as a tree into the first one.
template <int kChains, class T>
SIMD_FN T tree(T (&chain)[kChains]) {
  for (int half = kChains / 2; half > 0; half /= 2)
    for (int c = 0; c < half; ++c) chain[c] += chain[c + half];
  return chain[0];
}

float dot(const float* x, const float* y, int64_t n) {
  float chain[kRowChains] = {};
  int64_t i = 0;
  for (; i + kRowChains <= n; i += kRowChains)
    for (int c = 0; c < kRowChains; ++c) chain[c] += x[i + c] * y[i + c];
  for (int c = 0; i + c < n; ++c) chain[c] += x[i + c] * y[i + c];
  return tree(chain);
}

double long_dot(const float* x, const float* y, int64_t n) {
  double chain[kLengthChains] = {};
  int64_t i = 0;
  for (; i + kLengthChains <= n; i += kLengthChains)
    for (int c = 0; c < kLengthChains; ++c)
      chain[c] += static_cast<double>(x[i + c]) * static_cast<double>(y[i + c]);
  for (int c = 0; i + c < n; ++c)
    chain[c] += static_cast<double>(x[i + c]) * static_cast<double>(y[i + c]);
  return tree(chain);
}

void gram_schmidt(float* x, int64_t rank, int64_t n, double eps, bool revive) {
  for (int64_t r = 0; r < rank; ++r) {
    float* const row = x + r * n;
    const double before = long_dot(row, row, n);
    // The second pass takes out what rounding left of the first.
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t q = 0; q < r; ++q) {
        const float* const other = x + q * n;
        const auto part = static_cast<float>(long_dot(row, other, n));
        for (int64_t i = 0; i < n; ++i) row[i] -= part * other[i];
      }
    const double left = long_dot(row, row, n);
    const bool finite = before - before == 0;
    if (finite && left <= kDependent * kDependent * before) {
      std::memset(row, 0, static_cast<size_t>(n) * sizeof *row);
      if (revive) row[r % n] = 1;
      continue;
    }
    const auto inverse = static_cast<float>(1 / (std::sqrt(left) + eps));
    for (int64_t i = 0; i < n; ++i) row[i] *= inverse;
  }
}

// p[r][i] for rows [begin, end) of the matrix.
void project_rows(const LowRank& s, const float* m, const float* b, float* p, int64_t begin,
                  int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    for (int64_t r = 0; r < s.rank; ++r) p[r * s.n + i] = dot(m + i * s.k, b + r * s.k, s.k);
}

// b[r][k] for columns [begin, end) of the matrix. A block of rows stays in the cache for all rows of p.
void project_columns(const LowRank& s, const float* m, const float* p, float* b, int64_t begin,
                     int64_t end) {
  for (int64_t at = begin; at < end; at += kProjectTile) {
    const int64_t wide = std::min(kProjectTile, end - at);
    for (int64_t r = 0; r < s.rank; ++r)
      std::memset(b + r * s.k + at, 0, static_cast<size_t>(wide) * sizeof *b);
    for (int64_t first = 0; first < s.n; first += kRowBlock)
      for (int64_t r = 0; r < s.rank; ++r) {
        float block[kProjectTile] = {};
        for (int64_t i = first; i < std::min(s.n, first + kRowBlock); ++i) {
          const float factor = p[r * s.n + i];
          const float* const row = m + i * s.k + at;
          for (int64_t k = 0; k < wide; ++k) block[k] += row[k] * factor;
        }
        float* const total = b + r * s.k + at;
        for (int64_t k = 0; k < wide; ++k) total[k] += block[k];
      }
  }
}

// Elements [begin, end) of a factor of random values.
void random_values(PhiloxKey key, uint64_t updates, float* x, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i)
    x[i] = random_factor_value(key, updates, static_cast<uint64_t>(i));
}

// Rows [begin, end) of the matrix; error: null, or what is lost.
void expand_factors(const LowRank& s, const float* p, const float* b, int64_t ranks, float* m,
                    float* error, int64_t begin, int64_t end) {
  const auto count = static_cast<float>(ranks);
  for (int64_t i = begin; i < end; ++i)
    for (int64_t at = 0; at < s.k; at += kColumnTile) {
      const int64_t wide = std::min(kColumnTile, s.k - at);
      float sum[kColumnTile] = {};
      for (int64_t r = 0; r < s.rank; ++r) {
        const float factor = p[r * s.n + i];
        for (int64_t k = 0; k < wide; ++k) sum[k] += factor * b[r * s.k + at + k];
      }
      float* const to = m + i * s.k + at;
      if (error)
        for (int64_t k = 0; k < wide; ++k) error[i * s.k + at + k] = to[k] - sum[k] / count;
      std::memcpy(to, sum, static_cast<size_t>(wide) * sizeof *sum);
    }
}

void add_scaled(const float* x, float scale, float* y, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) y[i] += x[i] * scale;
}

void divide(const float* x, float by, float* y, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; ++i) y[i] = x[i] / by;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

namespace {

LowRank low_rank(const TensorSpec& matrix, const TensorSpec& factor) {
  return {matrix.shape[0], matrix.shape[1], factor.shape[0]};
}

}  // namespace

std::unique_ptr<Kernel> make_gram_schmidt(const KernelSpec& spec) {
  return kernel_of([attrs = attrs_as<GramSchmidtAttrs>(spec.attrs), rank = spec.out[0].shape[0],
                    n = spec.out[0].shape[1]](const KernelCall& call) {
    DSTRAIN_BEST(gram_schmidt)
    (data<float>(call.out, 0), rank, n, attrs.eps, attrs.revive);
  });
}

std::unique_ptr<Kernel> make_random_factor(const KernelSpec& spec) {
  const auto attrs = attrs_as<RandomFactorAttrs>(spec.attrs);
  return kernel_of([threads = spec.threads, n = elements(spec.out[0]),
                    key = stream_key(attrs.seed, attrs.stream)](const KernelCall& call) {
    auto* x = data<float>(call.out, 0);
    const auto updates = static_cast<uint64_t>(call.state->applied_steps);
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(random_values)(key, updates, x, begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_project_rows(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, s = low_rank(spec.in[0], spec.in[1])](const KernelCall& call) {
        const auto *m = data<const float>(call.in, 0), *b = data<const float>(call.in, 1);
        auto* p = data<float>(call.out, 0);
        parallel_ranges(threads, s.n, row_grain(s.k * size_of(DType::f32)),
                        [&](int64_t begin, int64_t end) {
                          DSTRAIN_BEST(project_rows)(s, m, b, p, begin, end);
                        });
      });
}

std::unique_ptr<Kernel> make_project_columns(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, s = low_rank(spec.in[0], spec.in[1])](const KernelCall& call) {
        const auto *m = data<const float>(call.in, 0), *p = data<const float>(call.in, 1);
        auto* b = data<float>(call.out, 0);
        parallel_ranges(threads, s.k, std::max<int64_t>(16, kFlatGrain / s.n / 16 * 16),
                        [&](int64_t begin, int64_t end) {
                          DSTRAIN_BEST(project_columns)(s, m, p, b, begin, end);
                        });
      });
}

std::unique_ptr<Kernel> make_expand_factors(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, ranks = attrs_as<ExpandAttrs>(spec.attrs).ranks,
                    s = low_rank(spec.in[2], spec.in[0])](const KernelCall& call) {
    const auto *p = data<const float>(call.in, 0), *b = data<const float>(call.in, 1);
    auto *m = data<float>(call.out, 0), *error = data<float>(call.out, 1);
    parallel_ranges(threads, s.n, row_grain(s.k * size_of(DType::f32)),
                    [&](int64_t begin, int64_t end) {
                      DSTRAIN_BEST(expand_factors)(s, p, b, ranks, m, error, begin, end);
                    });
  });
}

std::unique_ptr<Kernel> make_add_error(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0])](const KernelCall& call) {
    const auto* error = data<const float>(call.in, 0);
    auto* x = data<float>(call.out, 0);
    const float scale = call.state->loss_scale;
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(add_scaled)(error, scale, x, begin, end);
    });
  });
}

std::unique_ptr<Kernel> make_commit_state(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, n = elements(spec.in[0]),
                    packed = spec.in[0].dtype == DType::u8,
                    attrs = attrs_as<CommitAttrs>(spec.attrs)](const KernelCall& call) {
    if (call.state->skip) return;
    if (packed) {
      const auto* bytes = data<const std::byte>(call.in, 0);
      auto* to = data<std::byte>(call.out, 0);
      return parallel_ranges(threads, n, 4 * kFlatGrain, [&](int64_t begin, int64_t end) {
        std::memcpy(to + begin, bytes + begin, static_cast<size_t>(end - begin));
      });
    }
    const auto* x = data<const float>(call.in, 0);
    auto* y = data<float>(call.out, 0);
    const float by = attrs.unscale ? call.state->loss_scale : static_cast<float>(attrs.divisor);
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(divide)(x, by, y, begin, end);
    });
  });
}

}  // namespace dstrain::simd
#endif
