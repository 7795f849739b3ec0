// reduce: sums, largest or smallest values of a formula. Order of a sum, which shapes and views alone decide:
// - By rows, where what is added lies side by side: runs of 256 terms are added in packs of 16 and then as a tree; the runs
//   in order in f64, blocks of 65536 terms by themselves.
// - By columns, where results lie side by side: 64 terms are added in order in f32, and these sums in order in f64, blocks of
//   1024 terms by themselves.
// Blocks are added in order in f64. Minimum memory traffic: the operands once, and the results.
#include <array>
#include <limits>

#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/general/reduce.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/general/walk-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_REDUCE_ONCE
#define DSTRAIN_SIMD_REDUCE_ONCE
namespace dstrain::simd {
namespace {

struct ReduceRun {
  Reduction kind{};
  Walk walk{};  // by rows: results, then terms; by columns: terms, then results
  bool by_columns = false;
  int64_t results = 0, terms = 0, block = 0;  // block: terms of a block
  double* partial = nullptr;                  // (blocks, results)

  int64_t blocks() const { return (terms + block - 1) / block; }
  double none() const {
    const double infinity = std::numeric_limits<double>::infinity();
    return kind == Reduction::sum ? 0 : kind == Reduction::maximum ? -infinity : infinity;
  }
};

// Returns what is left of two values; NaN, if one of them is.
inline double joined(Reduction kind, double a, double b) {
  if (kind == Reduction::sum) return a + b;
  if (a != a || b != b) return std::numeric_limits<double>::quiet_NaN();
  return kind == Reduction::maximum ? std::max(a, b) : std::min(a, b);
}

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Returns what is left of n <= kTile values.
double reduce_run(Reduction kind, const float* values, int64_t n, double none) {
  if (kind == Reduction::sum) {
    Pack total = all(0);
    for_packs(0, n, [&](int64_t i, auto lanes) SIMD_INLINE {
      total = total + keep(lanes, load(values + i, lanes));
    });
    return static_cast<double>(sum(total));
  }
  double best = none;
  for (int64_t i = 0; i < n; ++i) best = joined(kind, best, static_cast<double>(values[i]));
  return best;
}

// Computes the parts of results [begin, end) in one block of terms, by rows. Short rows share a tile.
void rows_of_block(const ReduceRun& r, int64_t b, int64_t begin, int64_t end) {
  Tiles tiles(r.walk);
  const int64_t first = b * r.block, terms = std::min(r.block, r.terms - first);
  double* to = r.partial + b * r.results;
  const int64_t together = terms == r.terms ? std::max<int64_t>(1, kTile / terms) : 1;
  for (int64_t i = begin; i < end; i += together) {
    const int64_t count = std::min(together, end - i);
    if (count > 1 || terms <= kTile) {
      const float* values = tiles.values(i * r.terms + first, count * terms);
      for (int64_t k = 0; k < count; ++k)
        to[i + k] = reduce_run(r.kind, values + k * terms, terms, r.none());
      continue;
    }
    double total = r.none();
    for (int64_t t = 0; t < terms; t += kTile) {
      const int64_t n = std::min(kTile, terms - t);
      const float* values = tiles.values(i * r.terms + first + t, n);
      total = joined(r.kind, total, reduce_run(r.kind, values, n, r.none()));
    }
    to[i] = total;
  }
}

// The same by columns.
void columns_of_block(const ReduceRun& r, int64_t b, int64_t begin, int64_t end) {
  constexpr int64_t kFew = 64;
  Tiles tiles(r.walk);
  const int64_t first = b * r.block, last = std::min(first + r.block, r.terms);
  alignas(64) float few[kTile];
  for (int64_t i = begin; i < end; i += kTile) {
    const int64_t n = std::min(kTile, end - i);
    double* to = r.partial + b * r.results + i;
    std::fill_n(to, n, r.none());
    for (int64_t t = first; t < last; t += kFew) {
      std::fill_n(few, kTile, static_cast<float>(r.none()));
      for (int64_t k = t; k < std::min(t + kFew, last); ++k) {
        const float* values = tiles.values(k * r.results + i, n);
        for (int64_t c = 0; c < n; c += kPack) {
          const Pack so_far = load(few + c), value = load(values + c);
          store(r.kind == Reduction::sum       ? so_far + value
                : r.kind == Reduction::maximum ? any_maximum(so_far, value)
                                               : any_minimum(so_far, value),
                few + c);
        }
      }
      for (int64_t c = 0; c < n; ++c) to[c] = joined(r.kind, to[c], static_cast<double>(few[c]));
    }
  }
}

// Adds the blocks of results [begin, end), and writes them.
void join_blocks(const ReduceRun& r, bool accumulate, DType dtype, void* out, int64_t begin,
                 int64_t end) {
  alignas(64) float values[kTile];
  for (int64_t i = begin; i < end; i += kTile) {
    const int64_t n = std::min(kTile, end - i);
    for (int64_t c = 0; c < n; ++c) {
      double total = r.partial[i + c];
      for (int64_t b = 1; b < r.blocks(); ++b)
        total = joined(r.kind, total, r.partial[b * r.results + i + c]);
      values[c] = static_cast<float>(total);
    }
    write_values(values, n, accumulate, dtype, out, i);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {
namespace {

int64_t elements_of(const Shape& space, int begin, int end) {
  int64_t n = 1;
  for (int d = begin; d < end; ++d) n *= space[d];
  return n;
}

// Returns the list with its first `kept` numbers behind the others.
template <class Numbers>
void rotate_kept(Numbers& numbers, int kept, int rank) {
  std::rotate(numbers.begin(), numbers.begin() + kept, numbers.begin() + rank);
}

ReduceRun run_of(const KernelSpec& spec) {
  auto attrs = attrs_as<ReduceAttrs>(spec.attrs);
  attrs.kept = collapse(attrs.space, attrs.views, attrs.kept);
  if (attrs.kept == attrs.space.rank) attrs.space.append(1);  // one term each
  const int rank = attrs.space.rank;
  ReduceRun run{.kind = attrs.kind,
                .by_columns = reduces_columns(attrs),
                .results = elements_of(attrs.space, 0, attrs.kept),
                .terms = elements_of(attrs.space, attrs.kept, rank),
                .block = 65536};
  if (run.by_columns) {
    run.block = 1024;
    rotate_kept(attrs.space.dims, attrs.kept, rank);
    for (View& view : attrs.views)
      for (View::Numbers* numbers : {&view.strides, &view.begin, &view.end})
        rotate_kept(*numbers, attrs.kept, rank);
  }
  run.walk = walk_over(attrs.formula, attrs.space, attrs.views, spec.in);
  return run;
}

}  // namespace

int64_t reduce_workspace(const KernelSpec& spec) {
  const ReduceRun run = run_of(spec);
  return run.blocks() * run.results * static_cast<int64_t>(sizeof(double));
}

std::unique_ptr<Kernel> make_reduce(const KernelSpec& spec) {
  return kernel_of([run = run_of(spec), threads = spec.threads,
                    dtype = spec.out[0].dtype](const KernelCall& call) {
    ReduceRun here = run;
    here.walk.read(call.in);
    here.partial = workspace<double>(call, here.blocks() * here.results);
    const int64_t work = std::min(here.terms, here.block);
    const int64_t grain =
        here.by_columns ? kTile : std::max<int64_t>(1, kFlatGrain / std::max<int64_t>(1, work));
    for_parts(threads, here.blocks(), here.results, grain,
              [&](int64_t block, int64_t begin, int64_t end) {
                if (here.by_columns)
                  DSTRAIN_BEST(columns_of_block)(here, block, begin, end);
                else
                  DSTRAIN_BEST(rows_of_block)(here, block, begin, end);
              });
    parallel_ranges(threads, here.results, kFlatGrain, [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(join_blocks)(here, call.accumulate, dtype, data(call.out, 0), begin, end);
    });
  });
}

}  // namespace dstrain::simd
#endif
