// gram_schmidt, random_factor, project_rows, project_columns, expand_factors, add_error and commit_state
// (runtime/ir/ops/low_rank.h).
// They give the bits of kernels/cpu/memory_bound/codecs/low_rank.cpp. Minimum memory traffic, bytes per element of the matrix:
// projections 4, random_factor 4, expand_factors 8 and 4 for the error, add_error 12, commit_state 8.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "runtime/core/philox.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kThreads = 256, kWarps = 8;
constexpr int64_t kRowBlock = 256;
constexpr double kDependent = 1e-6;

unsigned blocks_of(int64_t n, int64_t each) {
  return static_cast<unsigned>((n + each - 1) / each);
}

// Returns x . y to all threads of a block of kThreads, each of which has one chain of the sum. `tile`: kThreads values.
__device__ double dot(const float* x, const float* y, int64_t n, double* tile) {
  double chain = 0;
  for (int64_t i = threadIdx.x; i < n; i += kThreads)
    chain += static_cast<double>(x[i]) * static_cast<double>(y[i]);
  __syncthreads();
  tile[threadIdx.x] = chain;
  for (int half = kThreads / 2; half > 0; half /= 2) {
    __syncthreads();
    if (static_cast<int>(threadIdx.x) < half) tile[threadIdx.x] += tile[threadIdx.x + half];
  }
  __syncthreads();
  return tile[0];
}

// One block: rows depend on those before them.
__global__ void __launch_bounds__(kThreads)
    orthonormal_rows(float* x, int64_t rank, int64_t n, double eps, bool revive) {
  __shared__ double tile[kThreads];
  for (int64_t r = 0; r < rank; ++r) {
    float* const row = x + r * n;
    const double before = dot(row, row, n, tile);
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t q = 0; q < r; ++q) {
        const float* const other = x + q * n;
        const auto part = static_cast<float>(dot(row, other, n, tile));
        for (int64_t i = threadIdx.x; i < n; i += kThreads) row[i] -= part * other[i];
      }
    const double left = dot(row, row, n, tile);
    const bool finite = before - before == 0;
    const bool dependent = finite && left <= kDependent * kDependent * before;
    const auto inverse = static_cast<float>(1 / (sqrt(left) + eps));
    for (int64_t i = threadIdx.x; i < n; i += kThreads) {
      if (dependent)
        row[i] = revive && i == r % n ? 1.0f : 0.0f;
      else
        row[i] *= inverse;
    }
    __syncthreads();
  }
}

// A warp has one element of p, a lane one chain of its sum.
__global__ void __launch_bounds__(32 * kWarps)
    row_products(const float* m, const float* b, int64_t n, int64_t k, int64_t rank, float* p) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.y;
  if (at >= n * rank) return;
  const float* const x = m + at % n * k;
  const float* const y = b + at / n * k;
  float chain = 0;
  for (int64_t i = threadIdx.x; i < k; i += 32) chain += x[i] * y[i];
  for (int half = 16; half > 0; half /= 2) chain += __shfl_down_sync(~0u, chain, half);
  if (threadIdx.x == 0) p[at] = chain;
}

// Adds a block of rows: thread x has a column, blockIdx.y the block, blockIdx.z the row of p.
__global__ void __launch_bounds__(kThreads)
    column_blocks(const float* m, const float* p, int64_t n, int64_t k, float* sums) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  const int64_t block = blockIdx.y, blocks = (n + kRowBlock - 1) / kRowBlock, r = blockIdx.z;
  if (column >= k) return;
  float sum = 0;
  for (int64_t i = block * kRowBlock; i < min(n, (block + 1) * kRowBlock); ++i)
    sum += m[i * k + column] * p[r * n + i];
  sums[(r * blocks + block) * k + column] = sum;
}

__global__ void __launch_bounds__(kThreads)
    add_column_blocks(const float* sums, int64_t blocks, int64_t k, int64_t rank, float* b) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= rank * k) return;
  const float* const of = sums + at / k * blocks * k + at % k;
  float total = 0;
  for (int64_t block = 0; block < blocks; ++block) total += of[block * k];
  b[at] = total;
}

__global__ void __launch_bounds__(kThreads)
    outer_products(const float* p, const float* b, int64_t n, int64_t k, int64_t rank, float ranks,
                   float* m, float* error) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= n * k) return;
  const int64_t i = at / k, column = at % k;
  float sum = 0;
  for (int64_t r = 0; r < rank; ++r) sum += p[r * n + i] * b[r * k + column];
  if (error != nullptr) error[at] = m[at] - __fdiv_rn(sum, ranks);
  m[at] = sum;
}

__global__ void __launch_bounds__(kThreads)
    add_scaled(const float* x, int64_t n, const StepState* state, float* y) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < n) y[at] += x[at] * state->loss_scale;
}

__global__ void __launch_bounds__(kThreads)
    commit(const float* x, int64_t n, const StepState* state, bool unscale, float divisor,
           float* y) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < n && state->skip == 0) y[at] = __fdiv_rn(x[at], unscale ? state->loss_scale : divisor);
}

__global__ void __launch_bounds__(kThreads)
    random_values(PhiloxKey key, int64_t n, const StepState* state, float* x) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < n)
    x[at] = random_factor_value(key, static_cast<uint64_t>(state->applied_steps),
                                static_cast<uint64_t>(at));
}

constexpr int kCommitted = 16;  // bytes of a thread

__global__ void __launch_bounds__(kThreads)
    commit_bytes(const uint8_t* x, int64_t n, const StepState* state, uint8_t* y) {
  const int64_t at = (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kCommitted;
  if (at >= n || state->skip) return;
  if (at + kCommitted <= n && aligned<kCommitted>(x) && aligned<kCommitted>(y)) {
    using Bytes = Packed<uint8_t, kCommitted>;
    *reinterpret_cast<Bytes*>(y + at) = *reinterpret_cast<const Bytes*>(x + at);
    return;
  }
  for (int64_t i = at; i < n && i < at + kCommitted; ++i) y[i] = x[i];
}

}  // namespace

std::unique_ptr<Kernel> make_random_factor(const KernelSpec& spec, const LaunchContext& context) {
  const auto attrs = attrs_as<RandomFactorAttrs>(spec.attrs);
  return kernel_of([context, n = elements(spec.out[0]),
                    key = stream_key(attrs.seed, attrs.stream)](const KernelCall& call) {
    launch(context.stream, "random_factor", Grid{blocks_of(n, kThreads), kThreads}, random_values,
           key, n, call.state, data<float>(call.out, 0));
  });
}

std::unique_ptr<Kernel> make_gram_schmidt(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, attrs = attrs_as<GramSchmidtAttrs>(spec.attrs),
                    rank = spec.out[0].shape[0], n = spec.out[0].shape[1]](const KernelCall& call) {
    launch(context.stream, "gram_schmidt", Grid{1, kThreads}, orthonormal_rows,
           data<float>(call.out, 0), rank, n, attrs.eps, attrs.revive);
  });
}

std::unique_ptr<Kernel> make_project_rows(const KernelSpec& spec, const LaunchContext& context) {
  const Shape m = spec.in[0].shape;
  return kernel_of(
      [context, n = m[0], k = m[1], rank = spec.in[1].shape[0]](const KernelCall& call) {
        launch(context.stream, "project_rows", Grid{blocks_of(n * rank, kWarps), dim3(32, kWarps)},
               row_products, data<const float>(call.in, 0), data<const float>(call.in, 1), n, k,
               rank, data<float>(call.out, 0));
      });
}

int64_t project_columns_workspace(const KernelSpec& spec) {
  const Shape m = spec.in[0].shape;
  return blocks_of(m[0], kRowBlock) * m[1] * spec.in[1].shape[0] * size_of(DType::f32);
}

std::unique_ptr<Kernel> make_project_columns(const KernelSpec& spec, const LaunchContext& context) {
  const Shape m = spec.in[0].shape;
  return kernel_of([context, n = m[0], k = m[1],
                    rank = spec.in[1].shape[0]](const KernelCall& call) {
    auto* sums = workspace<float>(call, blocks_of(n, kRowBlock) * k * rank);
    const unsigned blocks = blocks_of(n, kRowBlock);
    launch(context.stream, "project_columns",
           Grid{dim3(blocks_of(k, kThreads), blocks, static_cast<unsigned>(rank)), kThreads},
           column_blocks, data<const float>(call.in, 0), data<const float>(call.in, 1), n, k, sums);
    launch(context.stream, "project_columns (blocks in order)",
           Grid{blocks_of(rank * k, kThreads), kThreads}, add_column_blocks, sums,
           static_cast<int64_t>(blocks), k, rank, data<float>(call.out, 0));
  });
}

std::unique_ptr<Kernel> make_expand_factors(const KernelSpec& spec, const LaunchContext& context) {
  const Shape m = spec.in[2].shape;
  return kernel_of([context, n = m[0], k = m[1], rank = spec.in[0].shape[0],
                    ranks = static_cast<float>(attrs_as<ExpandAttrs>(spec.attrs).ranks)](
                       const KernelCall& call) {
    launch(context.stream, "expand_factors", Grid{blocks_of(n * k, kThreads), kThreads},
           outer_products, data<const float>(call.in, 0), data<const float>(call.in, 1), n, k, rank,
           ranks, data<float>(call.out, 0), data<float>(call.out, 1));
  });
}

std::unique_ptr<Kernel> make_add_error(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0])](const KernelCall& call) {
    launch(context.stream, "add_error", Grid{blocks_of(n, kThreads), kThreads}, add_scaled,
           data<const float>(call.in, 0), n, call.state, data<float>(call.out, 0));
  });
}

std::unique_ptr<Kernel> make_commit_state(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.in[0]), packed = spec.in[0].dtype == DType::u8,
                    attrs = attrs_as<CommitAttrs>(spec.attrs)](const KernelCall& call) {
    if (packed) {
      launch(context.stream, "commit_state", Grid{blocks_of(n, kThreads * kCommitted), kThreads},
             commit_bytes, data<const uint8_t>(call.in, 0), n, call.state,
             data<uint8_t>(call.out, 0));
      return;
    }
    launch(context.stream, "commit_state", Grid{blocks_of(n, kThreads), kThreads}, commit,
           data<const float>(call.in, 0), n, call.state, attrs.unscale,
           static_cast<float>(attrs.divisor), data<float>(call.out, 0));
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
