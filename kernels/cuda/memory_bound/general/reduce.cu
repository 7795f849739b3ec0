// reduce: sums, largest or smallest values of a formula. Order of a sum, which shapes and views alone decide: terms in blocks
// of 65536; of a block, lane i mod 32 of a warp adds term i, or one thread all terms where results lie side by side; 64 terms
// are added in order in f32, and these sums in order in f64; lanes are added as a tree, blocks in order. Minimum memory
// traffic: the operands once, and the results.
#include <limits>

#include "kernels/cuda/memory_bound/general/walk.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int64_t kBlock = 65536, kBlockOfColumns = 1024;
constexpr int kFew = 64, kWarps = 4;

struct ReduceRun {
  Reduction kind;
  DeviceWalk walk;
  bool by_columns;
  int64_t results, terms, block;
  double* partial;  // (blocks, results)

  __host__ __device__ int64_t blocks() const { return (terms + block - 1) / block; }
};

__device__ inline double none_of(Reduction kind) {
  const double infinity = 1.0 / 0.0;
  return kind == Reduction::sum ? 0 : kind == Reduction::maximum ? -infinity : infinity;
}

// Returns what is left of two values; NaN, if one of them is.
template <class V>
__device__ inline V joined(Reduction kind, V a, V b) {
  if (kind == Reduction::sum) return a + b;
  if (a != a) return a;
  if (b != b) return b;
  return kind == Reduction::maximum ? (a < b ? b : a) : (b < a ? b : a);
}

// Returns what is left of terms t, t + step, ... before `count`; term 0 is that of index `first`.
template <class T>
__device__ inline double reduce_terms(const ReduceRun& r, int64_t first, int t, int count,
                                      int step) {
  double total = none_of(r.kind);
#pragma unroll 1
  while (t < count) {
    auto few = static_cast<float>(none_of(r.kind));
#pragma unroll 1
    for (int k = 0; k < kFew && t < count; ++k, t += step) {
      float value[1];
      walk_values<T>(r.walk, first + t, first + count, value);
      few = joined(r.kind, few, value[0]);
    }
    total = joined(r.kind, total, static_cast<double>(few));
  }
  return total;
}

// SASS: stack 320
template <class T>
__global__ void __launch_bounds__(32 * kWarps) reduce_rows(const ReduceRun r) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (item >= r.blocks() * r.results) return;
  const int64_t block = item / r.results, result = item % r.results, begin = block * r.block;
  const auto count = static_cast<int>(min(r.terms - begin, r.block));
  double total =
      reduce_terms<T>(r, result * r.terms + begin, static_cast<int>(threadIdx.x), count, 32);
  for (int half = 16; half > 0; half /= 2)
    total = joined(r.kind, total, __shfl_down_sync(~0u, total, half));
  if (threadIdx.x == 0) r.partial[item] = total;
}

// SASS: stack 320
template <class T>
__global__ void __launch_bounds__(128) reduce_columns(const ReduceRun r) {
  const int64_t item = static_cast<int64_t>(blockIdx.x) * 128 + threadIdx.x;
  if (item >= r.blocks() * r.results) return;
  const int64_t block = item / r.results, result = item % r.results, begin = block * r.block;
  const auto count = static_cast<int>(min(r.terms - begin, r.block));
  r.partial[item] = reduce_terms<T>(r, result * r.terms + begin, 0, count, 1);
}

template <class To>
struct JoinBlocks {
  Reduction kind;
  const double* partial;
  int64_t blocks, results;
  To* y;
  bool accumulate;

  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    double total = partial[at];
    for (int64_t b = 1; b < blocks; ++b) total = joined(kind, total, partial[b * results + at]);
    const auto value = static_cast<float>(total);
    y[at] = narrow<To>(accumulate ? widen(y[at]) + value : value);
  }
};

unsigned grid_of(int64_t items, int64_t of_block) {
  return static_cast<unsigned>((items + of_block - 1) / of_block);
}

int64_t elements_of(const Shape& space, int begin, int end) {
  int64_t n = 1;
  for (int d = begin; d < end; ++d) n *= space[d];
  return n;
}

ReduceRun run_of(const KernelSpec& spec) {
  auto attrs = attrs_as<ReduceAttrs>(spec.attrs);
  attrs.kept = collapse(attrs.space, attrs.views, attrs.kept);
  const int rank = attrs.space.rank;
  ReduceRun run{};
  run.kind = attrs.kind;
  run.by_columns = reduces_columns(attrs);
  run.results = elements_of(attrs.space, 0, attrs.kept);
  run.terms = elements_of(attrs.space, attrs.kept, rank);
  run.block = run.by_columns ? kBlockOfColumns : kBlock;
  run.walk = walk_over(attrs.formula, attrs.space, attrs.views, spec.in, spec.out[0].dtype);
  return run;
}

}  // namespace

int64_t reduce_workspace(const KernelSpec& spec) {
  const ReduceRun run = run_of(spec);
  return run.blocks() * run.results * static_cast<int64_t>(sizeof(double));
}

std::unique_ptr<Kernel> make_reduce(const KernelSpec& spec, const LaunchContext& context) {
  const DType to = spec.out[0].dtype, from = type_of(spec.in, to);
  return kernel_of([context, run = run_of(spec), from, to](const KernelCall& call) {
    ReduceRun here = run;
    here.walk.read(call.in);
    const int64_t items = here.blocks() * here.results;
    here.partial = workspace<double>(call, items);
    with_type(from, [&](auto type) {
      using T = decltype(type);
      if (here.by_columns)
        launch(context.stream, "reduce (columns)", Grid{grid_of(items, 128), 128},
               reduce_columns<T>, here);
      else
        launch(context.stream, "reduce (rows)", Grid{grid_of(items, kWarps), dim3(32, kWarps)},
               reduce_rows<T>, here);
    });
    with_type(to, [&](auto type) {
      using To = decltype(type);
      To* const y = data<To>(call.out, 0);
      launch_flat<1>(
          context, "reduce (blocks)", static_cast<const To*>(y), here.results,
          JoinBlocks<To>{here.kind, here.partial, here.blocks(), here.results, y, call.accumulate});
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
