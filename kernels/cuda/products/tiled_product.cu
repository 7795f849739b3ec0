// A product in tiles. Lower bound: 2 m n k FLOPs at the rate of ordinary f32 multiply-adds.
#include "kernels/cuda/gelu.cuh"
#include "kernels/cuda/products/products.cuh"
#include "kernels/cuda/products/tiled_product.cuh"
#include "kernels/cuda/products/tiles.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

template <class T, class Out>
struct Arguments {
  int64_t m, n, k;
  Operand<T> a, b;      // (m,k), (k,n)
  const T* bias;        // (n), or null
  Out* c;               // (m,n), row-major
  Out* pre;             // (m,n), written: gelu's operand; or null
  const Out* at;        // (m,n): the points at which gelu's derivative is taken; or null
  const Out* residual;  // (m,n), or null
  bool relu, gelu, accumulate;
};

template <class T, class Out>
__global__ void __launch_bounds__(kBlock) tiled_product_kernel(Arguments<T, Out> p) {
  const int row = tile_row(), column = tile_column();
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kTile,
                first_column = static_cast<int64_t>(blockIdx.y) * kTile;
  float sums[kSide][kSide] = {};
  add_products(p.a, p.b, p.m, p.n, p.k, first_row, first_column, sums);

#pragma unroll
  for (int r = 0; r < kSide; ++r) {
#pragma unroll
    for (int c = 0; c < kSide; ++c) {
      const int64_t i = first_row + row + r, j = first_column + column + c;
      if (i >= p.m || j >= p.n) continue;
      float x = sums[r][c];
      if (p.bias) x += widen(p.bias[j]);
      if (p.relu && x < 0) x = 0;
      if (p.pre) p.pre[i * p.n + j] = narrow<Out>(x);
      if (p.gelu) x = Gelu::value(x);
      if (p.at) x = Gelu::grad(x, widen(p.at[i * p.n + j]));
      if (p.residual) x += widen(p.residual[i * p.n + j]);
      Out* const to = p.c + i * p.n + j;
      if constexpr (std::is_same_v<Out, float>) {
        if (p.accumulate) x += *to;
      }
      *to = narrow<Out>(x);
    }
  }
}

template <class T, class Out>
void launch_of(const Product& product, const KernelCall& call, const LaunchContext& context) {
  const int64_t in = product.in_features, out = product.out_features;
  const auto* const first = call.in[0].as<const T>();
  const auto* const second = call.in[1].as<const T>();
  Arguments<T, Out> p{product.m(),
                      product.n(),
                      product.k(),
                      {first, 0, 0},
                      {second, 0, 0},
                      product.bias ? call.in[2].as<const T>() : nullptr,
                      call.out[0].as<Out>(),
                      nullptr,
                      nullptr,
                      nullptr,
                      product.relu,
                      product.gelu && product.op == OpKind::linear,
                      call.accumulate && product.op == OpKind::linear_weight_grad};
  switch (product.op) {
    case OpKind::linear:  // x (R,K), weight (N,K) transposed
      p.a.row = in, p.a.column = 1, p.b.row = 1, p.b.column = in;
      break;
    case OpKind::linear_input_grad:  // d_y (R,N), weight (N,K)
      p.a.row = out, p.a.column = 1, p.b.row = in, p.b.column = 1;
      break;
    default:  // d_y (R,N) transposed, x (R,K)
      p.a.row = 1, p.a.column = out, p.b.row = in, p.b.column = 1;
  }
  if (product.residual) p.residual = call.in[kResidualInput].as<const Out>();
  if (product.pre && product.op == OpKind::linear) p.pre = call.out[kPreOutput].as<Out>();
  if (product.pre && product.op == OpKind::linear_input_grad)
    p.at = call.in[kPreInput].as<const Out>();
  const auto blocks = [](int64_t n) { return static_cast<unsigned>((n + kTile - 1) / kTile); };
  // Rows are along x, which has no limit: a batch may have more of them than y's 65,535 blocks.
  launch(context.stream, "tiled product", {dim3(blocks(p.m), blocks(p.n)), dim3(kBlock)},
         tiled_product_kernel<T, Out>, p);
}

template <class T>
void launch_dtype(const Product& product, const KernelCall& call, const LaunchContext& context) {
  if (product.op == OpKind::linear_weight_grad) return launch_of<T, float>(product, call, context);
  launch_of<T, T>(product, call, context);
}

}  // namespace

bool product_fuses(const KernelSpec& spec) {
  const Product p = product_of(spec);
  constexpr int64_t kVector = 8;  // 16-bit elements in 16 bytes
  return (p.gelu || p.residual) && is_16bit(p.dtype) && p.n() % kVector == 0;
}

void launch_tiled_product(const Product& product, const KernelCall& call,
                          const LaunchContext& context) {
  switch (product.dtype) {
    case DType::bf16:
      return launch_dtype<bf16>(product, call, context);
    case DType::f16:
      return launch_dtype<f16>(product, call, context);
    default:
      return launch_dtype<float>(product, call, context);
  }
}

}  // namespace dstrain::DSTRAIN_BACKEND
