// The products of the rows of experts in tiles, for any size and alignment. A tile belongs to one group: a block counts the tiles
// of those before to find its own, and ends where there are no more. So the grid follows from the number of all rows alone.
// Lower bound: 2 G N K FLOPs at the rate of ordinary f32 multiply-adds.
#include "kernels/cuda/products/grouped.cuh"
#include "kernels/cuda/products/tiles.cuh"
#include "kernels/operands.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

// The groups of rows of experts: those of group e end in front of row ends[e]. Groups have the weights of `weights` experts in
// turns.
struct ExpertRows {
  const int32_t* ends;
  int64_t groups, weights;

  __device__ int64_t begin(int64_t group) const {
    return group > 0 ? int64_t{ends[group - 1]} : 0;
  }
};

// y (G,M) = x (G,K) times a matrix (K,M) of each expert.
template <class T>
struct RowProducts {
  ExpertRows rows;
  int64_t k, m;
  const T* x;
  Operand<T> weight;  // of the first expert
  int64_t of_expert;  // elements of the weight of one
  T* y;
};

template <class T>
__global__ void __launch_bounds__(kBlock) grouped_rows_kernel(RowProducts<T> p) {
  int64_t tile = blockIdx.x, group = 0, begin = 0, count = 0;
  for (; group < p.rows.groups; ++group) {
    begin = p.rows.begin(group);
    count = p.rows.ends[group] - begin;
    const int64_t tiles = (count + kTile - 1) / kTile;
    if (tile < tiles) break;
    tile -= tiles;
  }
  if (group == p.rows.groups) return;
  const int64_t first_row = tile * kTile, first_column = static_cast<int64_t>(blockIdx.y) * kTile;
  Operand<T> weight = p.weight;
  weight.at += group % p.rows.weights * p.of_expert;
  float sums[kSide][kSide] = {};
  add_products(Operand<T>{p.x + begin * p.k, p.k, 1}, weight, count, p.m, p.k, first_row,
               first_column, sums);
  const int64_t row = first_row + tile_row(), column = first_column + tile_column();
#pragma unroll
  for (int r = 0; r < kSide; ++r)
#pragma unroll
    for (int c = 0; c < kSide; ++c)
      if (row + r < count && column + c < p.m)
        p.y[(begin + row + r) * p.m + column + c] = narrow<T>(sums[r][c]);
}

// d_weight (N,K) of each expert = d_y^T (N,rows) x (rows,K).
template <class T>
struct WeightProducts {
  ExpertRows rows;
  int64_t n, k;
  const T *d_y, *x;
  float* d_weight;
  bool accumulate;
};

template <class T>
__global__ void __launch_bounds__(kBlock) grouped_weight_kernel(WeightProducts<T> p) {
  const int64_t group = blockIdx.z, begin = p.rows.begin(group);
  const int64_t first_row = static_cast<int64_t>(blockIdx.x) * kTile,
                first_column = static_cast<int64_t>(blockIdx.y) * kTile;
  float sums[kSide][kSide] = {};
  add_products(Operand<T>{p.d_y + begin * p.n, 1, p.n}, Operand<T>{p.x + begin * p.k, p.k, 1}, p.n,
               p.k, p.rows.ends[group] - begin, first_row, first_column, sums);
  const int64_t row = first_row + tile_row(), column = first_column + tile_column();
#pragma unroll
  for (int r = 0; r < kSide; ++r)
#pragma unroll
    for (int c = 0; c < kSide; ++c) {
      if (row + r >= p.n || column + c >= p.k) continue;
      float* const to = p.d_weight + (group * p.n + row + r) * p.k + column + c;
      *to = p.accumulate ? *to + sums[r][c] : sums[r][c];
    }
}

unsigned tiles_of(int64_t n) {
  return static_cast<unsigned>((n + kTile - 1) / kTile);
}

// The sizes of the products: rows of all experts, columns of what is read and of what is written.
struct GroupedShape {
  OpKind op;
  int64_t rows, from, to, groups, weights;
};

template <class T>
void launch_rows(const GroupedShape& s, const KernelCall& call, const LaunchContext& context) {
  const auto* const weight = data<const T>(call.in, 1);
  Operand<T> of_first{weight, s.to, 1};
  if (s.op == OpKind::grouped_linear) of_first = {weight, 1, s.from};
  const RowProducts<T> products{{data<const int32_t>(call.in, 2), s.groups, s.weights},
                                s.from,
                                s.to,
                                data<const T>(call.in, 0),
                                of_first,
                                s.from * s.to,
                                data<T>(call.out, 0)};
  // Each group may have one tile that is not full.
  const int64_t most = s.rows / kTile + std::min(s.rows, s.groups);
  launch(context.stream, "grouped product",
         {dim3(static_cast<unsigned>(most), tiles_of(s.to)), dim3(kBlock)}, grouped_rows_kernel<T>,
         products);
}

template <class T>
void launch_weight(const GroupedShape& s, const KernelCall& call, const LaunchContext& context) {
  const WeightProducts<T> products{{data<const int32_t>(call.in, 2), s.groups, s.weights},
                                   s.from,
                                   s.to,
                                   data<const T>(call.in, 0),
                                   data<const T>(call.in, 1),
                                   data<float>(call.out, 0),
                                   call.accumulate};
  launch(context.stream, "grouped weight gradient",
         {dim3(tiles_of(s.from), tiles_of(s.to), static_cast<unsigned>(s.groups)), dim3(kBlock)},
         grouped_weight_kernel<T>, products);
}

template <class T>
void launch_grouped(const GroupedShape& s, const KernelCall& call, const LaunchContext& context) {
  if (s.op == OpKind::grouped_weight_grad)
    launch_weight<T>(s, call, context);
  else if (s.rows > 0)
    launch_rows<T>(s, call, context);
}

class GroupedProduct final : public Kernel {
 public:
  GroupedProduct(const KernelSpec& spec, const LaunchContext& context)
      : shape_{spec.op, rows(spec.in[0]), columns(spec.in[0]),
               columns(spec.op == OpKind::grouped_weight_grad ? spec.in[1] : spec.out[0]),
               elements(spec.in[2]),
               elements(spec.in[2]) / attrs_as<GroupedAttrs>(spec.attrs).senders},
        dtype_(spec.in[0].dtype),
        context_(context) {}

  void run(const KernelCall& call) const override {
    switch (dtype_) {
      case DType::bf16:
        return launch_grouped<bf16>(shape_, call, context_);
      case DType::f16:
        return launch_grouped<f16>(shape_, call, context_);
      default:
        return launch_grouped<float>(shape_, call, context_);
    }
  }

 private:
  const GroupedShape shape_;
  const DType dtype_;
  const LaunchContext context_;
};

}  // namespace

std::unique_ptr<Kernel> make_grouped(const KernelSpec& spec, const LaunchContext& context) {
  return std::make_unique<GroupedProduct>(spec, context);
}

}  // namespace dstrain::DSTRAIN_BACKEND
