// batch_norm and its gradient. A thread adds up the rows of a block of one column; one thread for each column adds up its blocks,
// in order; a third launch writes the rows. Minimum memory traffic in bytes: batch_norm 3 s R C, with a residual 4;
// batch_norm_grad 5 s R C, with relu 7.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "runtime/ir/ops/row_blocks.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int64_t kRows = 128;    // of a block, at least
constexpr int64_t kBlocks = 512;  // at most

// Operands as kernels read them; null: absent. `sums` has two sums of each column and block, and then values of columns.
template <class T>
struct Norm {
  RowBlocks blocks{0, 1};
  int64_t rows = 0, columns = 0;
  float eps = 0;
  bool relu = false;
  const T *x = nullptr, *weight = nullptr, *bias = nullptr, *residual = nullptr, *d_y = nullptr,
          *y = nullptr;
  T *result = nullptr, *d_residual = nullptr;
  float *mean = nullptr, *variance = nullptr, *d_weight = nullptr, *d_bias = nullptr,
        *sums = nullptr;

  __device__ float* of_block(int64_t block, int64_t column) const {
    return sums + 2 * block * columns + column;
  }
  // Values of a column: 0 to 2.
  __device__ float& of_column(int64_t value, int64_t column) const {
    return sums[(2 * blocks.count + value) * columns + column];
  }
  // The gradient before the act.
  __device__ float gradient(int64_t at) const {
    return relu && !(widen(y[at]) > 0) ? 0.0f : widen(d_y[at]);
  }
};

template <class T>
struct BlockMoments {
  Norm<T> o;
  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    const int64_t column = at % o.columns, block = at / o.columns;
    const int64_t begin = o.blocks.begin(block), end = o.blocks.end(block);
    float sum = 0, squares = 0;
    for (int64_t r = begin; r < end; ++r) sum += widen(o.x[r * o.columns + column]);
    const float mean = sum / static_cast<float>(end - begin);
    for (int64_t r = begin; r < end; ++r) {
      const float apart = widen(o.x[r * o.columns + column]) - mean;
      squares = fmaf(apart, apart, squares);
    }
    float* const to = o.of_block(block, column);
    to[0] = mean;
    to[o.columns] = squares;
  }
};

// Adds up the moments of blocks (Chan, Golub and LeVeque, 1979).
template <class T>
struct ColumnMoments {
  Norm<T> o;
  __device__ void operator()(int64_t at, int64_t count) const {
    if (at < 0 || at >= count) return;
    double centre = 0, squares = 0, n = 0;
    for (int64_t b = 0; b < o.blocks.count; ++b) {
      const float* const from = o.of_block(b, at);
      const auto more = static_cast<double>(o.blocks.end(b) - o.blocks.begin(b));
      const double apart = static_cast<double>(from[0]) - centre;
      centre += apart * more / (n + more);
      squares += static_cast<double>(from[o.columns]) + apart * apart * n * more / (n + more);
      n += more;
    }
    o.mean[at] = static_cast<float>(centre);
    o.variance[at] = static_cast<float>(squares / n);
    o.of_column(0, at) =
        static_cast<float>(static_cast<double>(widen(o.weight[at])) /
                           sqrt(static_cast<double>(o.variance[at]) + static_cast<double>(o.eps)));
  }
};

template <class T>
struct NormRows {
  Norm<T> o;
  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    const int64_t column = at % o.columns;
    float v = fmaf(widen(o.x[at]) - o.mean[column], o.of_column(0, column), widen(o.bias[column]));
    if (o.residual) v += widen(o.residual[at]);
    o.result[at] = narrow<T>(o.relu && v < 0 ? 0.0f : v);
  }
};

template <class T>
struct BlockGradients {
  Norm<T> o;
  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    const int64_t column = at % o.columns, block = at / o.columns;
    const float mean = o.mean[column];
    float plain = 0, apart = 0;
    for (int64_t r = o.blocks.begin(block); r < o.blocks.end(block); ++r) {
      const int64_t element = r * o.columns + column;
      const float g = o.gradient(element);
      if (o.d_residual) o.d_residual[element] = narrow<T>(g);
      plain += g;
      apart = fmaf(g, widen(o.x[element]) - mean, apart);
    }
    float* const to = o.of_block(block, column);
    to[0] = plain;
    to[o.columns] = apart;
  }
};

template <class T>
struct ColumnGradients {
  Norm<T> o;
  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    double plain = 0, apart = 0;
    for (int64_t b = 0; b < o.blocks.count; ++b) {
      plain += static_cast<double>(o.of_block(b, at)[0]);
      apart += static_cast<double>(o.of_block(b, at)[o.columns]);
    }
    const double inverse =
        1 / sqrt(static_cast<double>(o.variance[at]) + static_cast<double>(o.eps));
    const auto all = static_cast<double>(o.rows);
    o.d_weight[at] = static_cast<float>(apart * inverse);
    o.d_bias[at] = static_cast<float>(plain);
    o.of_column(0, at) = static_cast<float>(static_cast<double>(widen(o.weight[at])) * inverse);
    o.of_column(1, at) = static_cast<float>(plain / all);
    o.of_column(2, at) = static_cast<float>(apart * inverse * inverse / all);
  }
};

template <class T>
struct GradRows {
  Norm<T> o;
  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    const int64_t column = at % o.columns;
    const float apart = widen(o.x[at]) - o.mean[column];
    const float g = o.gradient(at) - o.of_column(1, column);
    o.result[at] = narrow<T>(fmaf(-apart, o.of_column(2, column), g) * o.of_column(0, column));
  }
};

RowBlocks blocks_of(int64_t rows) {
  return {rows, std::max(kRows, (rows + kBlocks - 1) / kBlocks)};
}

int64_t workspace_of(const TensorSpec& x) {
  return (2 * blocks_of(rows(x)).count + 3) * columns(x) * size_of(DType::f32);
}

// Returns what both kernels have alike.
template <class T>
Norm<T> norm_of(const BatchNormAttrs& attrs, int64_t r, int64_t c, const KernelCall& call) {
  Norm<T> o{};
  o.blocks = blocks_of(r);
  o.rows = r;
  o.columns = c;
  o.eps = attrs.eps;
  o.relu = attrs.relu;
  o.result = data<T>(call.out, 0);
  o.sums = workspace<float>(call, (2 * o.blocks.count + 3) * c);
  return o;
}

// Launches the sums of blocks, those of columns, and the rows.
template <class T, class Blocks, class Columns, class Rows>
void launch_norm(const LaunchContext& context, const char* name, const Norm<T>& o) {
  const auto* const anchor = static_cast<const float*>(o.sums);
  launch_flat<1>(context, name, anchor, o.blocks.count * o.columns, Blocks{o});
  launch_flat<1>(context, name, anchor, o.columns, Columns{o});
  launch_flat<1>(context, name, static_cast<const T*>(o.result), o.rows * o.columns, Rows{o});
}

}  // namespace

int64_t batch_norm_workspace(const KernelSpec& spec) {
  return workspace_of(spec.in[0]);
}
int64_t batch_norm_grad_workspace(const KernelSpec& spec) {
  return workspace_of(spec.in[1]);
}

std::unique_ptr<Kernel> make_batch_norm(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, attrs = attrs_as<BatchNormAttrs>(spec.attrs), r = rows(spec.in[0]),
                    c = columns(spec.in[0]), dtype = spec.in[0].dtype](const KernelCall& call) {
    with_type(dtype, [&](auto type) {
      using T = decltype(type);
      Norm<T> o = norm_of<T>(attrs, r, c, call);
      o.x = data<const T>(call.in, 0);
      o.weight = data<const T>(call.in, 1);
      o.bias = data<const T>(call.in, 2);
      o.residual = data<const T>(call.in, 3);
      o.mean = data<float>(call.out, 1);
      o.variance = data<float>(call.out, 2);
      launch_norm<T, BlockMoments<T>, ColumnMoments<T>, NormRows<T>>(context, "batch_norm", o);
    });
  });
}

std::unique_ptr<Kernel> make_batch_norm_grad(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, attrs = attrs_as<BatchNormAttrs>(spec.attrs), r = rows(spec.in[1]),
                    c = columns(spec.in[1]), dtype = spec.in[1].dtype](const KernelCall& call) {
    with_type(dtype, [&](auto type) {
      using T = decltype(type);
      Norm<T> o = norm_of<T>(attrs, r, c, call);
      o.d_y = data<const T>(call.in, 0);
      o.x = data<const T>(call.in, 1);
      o.weight = data<const T>(call.in, 2);
      o.mean = data<float>(call.in, 3);
      o.variance = data<float>(call.in, 4);
      o.y = data<const T>(call.in, 5);
      o.d_weight = data<float>(call.out, 1);
      o.d_bias = data<float>(call.out, 2);
      o.d_residual = data<T>(call.out, 3);
      launch_norm<T, BlockGradients<T>, ColumnGradients<T>, GradRows<T>>(context, "batch_norm_grad",
                                                                         o);
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
