// spread_rows, combine_rows and combine_weight_grad. A thread has a pack of a row of the micro-batch and meets the rows of experts
// in the order of slots; a warp has a sum over the columns of one slot. Minimum memory traffic in bytes, s bytes per element:
// s R C (S + 1).
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

// Rows, and where each of their slots is among the rows of experts.
struct Slotted {
  int64_t rows, columns, slots;
  const int32_t* places;
  const float* weights;  // null: all 1

  __device__ float weight(int64_t slot) const { return weights ? weights[slot] : 1.0f; }
};

// Columns [column, column + N) of a row: whole aligned packs, or one element.
template <int N, class T>
__device__ __forceinline__ void load_columns(const T* row, int64_t column, int64_t columns,
                                             float (&v)[N]) {
  if constexpr (N == 1)
    v[0] = widen(row[column]);
  else
    load(row, column, columns, v);
}
template <int N, class T>
__device__ __forceinline__ void store_columns(const float (&v)[N], T* row, int64_t column,
                                              int64_t columns) {
  if constexpr (N == 1)
    row[column] = narrow<T>(v[0]);
  else
    store(v, row, column, columns);
}

template <class T, int N>
struct SpreadRows {
  Slotted s;
  const T* x;
  T* y;
  __device__ void operator()(int64_t at, int64_t) const {
    const int64_t row = at / s.columns, column = at % s.columns;
    float v[N];
    load_columns(x + row * s.columns, column, s.columns, v);
    for (int64_t j = row * s.slots; j < (row + 1) * s.slots; ++j) {
      const float factor = s.weight(j);
      float scaled[N];
#pragma unroll
      for (int k = 0; k < N; ++k) scaled[k] = v[k] * factor;
      store_columns(scaled, y + s.places[j] * s.columns, column, s.columns);
    }
  }
};

template <class T, int N>
struct CombineRows {
  Slotted s;
  const T* x;
  T* y;
  __device__ void operator()(int64_t at, int64_t) const {
    const int64_t row = at / s.columns, column = at % s.columns;
    float sum[N] = {};
    for (int64_t j = row * s.slots; j < (row + 1) * s.slots; ++j) {
      const float factor = s.weight(j);
      float v[N];
      load_columns(x + s.places[j] * s.columns, column, s.columns, v);
#pragma unroll
      for (int k = 0; k < N; ++k) sum[k] = fmaf(v[k], factor, sum[k]);
    }
    store_columns(sum, y + row * s.columns, column, s.columns);
  }
};

constexpr int kSlotWarps = 8;  // of a block

template <class T>
__global__ void __launch_bounds__(32 * kSlotWarps)
    combine_weight_grad_kernel(Slotted s, const T* d_y, const T* x, float* d_weights) {
  const int64_t slot = static_cast<int64_t>(blockIdx.x) * kSlotWarps + threadIdx.y;
  if (slot >= s.rows * s.slots) return;
  const T* const of_row = d_y + slot / s.slots * s.columns;
  const T* const of_expert = x + s.places[slot] * s.columns;
  float sum = 0;
  for (int64_t k = threadIdx.x; k < s.columns; k += 32)
    sum = fmaf(widen(of_row[k]), widen(of_expert[k]), sum);
#pragma unroll
  for (int m = 16; m > 0; m /= 2) sum += __shfl_xor_sync(~0u, sum, m);
  if (threadIdx.x == 0) d_weights[slot] = sum;
}

Slotted slotted(const TensorSpec& x, const TensorSpec& places) {
  return {rows(x), columns(x), columns(places), nullptr, nullptr};
}

// Launches Op for packs of rows that consist of whole aligned ones, or for single elements.
template <template <class, int> class Op, class T>
void launch_slots(const LaunchContext& context, const char* name, const Slotted& s, const T* x,
                  T* y) {
  constexpr int kN = pack_of(sizeof(T));
  with_flag(whole_packs<kN>(s.columns, x, y), [&](auto aligned) {
    constexpr int kOfThread = decltype(aligned)::value ? kN : 1;
    const T* const anchor = nullptr;
    launch_flat<kOfThread>(context, name, anchor, s.rows * s.columns, Op<T, kOfThread>{s, x, y});
  });
}

template <template <class, int> class Op>
std::unique_ptr<Kernel> make_slots(const KernelSpec& spec, const LaunchContext& context,
                                   const char* name, const TensorSpec& of_rows) {
  return kernel_of([context, name, shape = slotted(of_rows, spec.in[1]),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    Slotted s = shape;
    s.places = data<const int32_t>(call.in, 1);
    s.weights = data<const float>(call.in, 2);
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch_slots<Op>(context, name, s, data<const T>(call.in, 0), data<T>(call.out, 0));
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_spread_rows(const KernelSpec& spec, const LaunchContext& context) {
  return make_slots<SpreadRows>(spec, context, "spread_rows", spec.in[0]);
}

std::unique_ptr<Kernel> make_combine_rows(const KernelSpec& spec, const LaunchContext& context) {
  return make_slots<CombineRows>(spec, context, "combine_rows", spec.out[0]);
}

std::unique_ptr<Kernel> make_combine_weight_grad(const KernelSpec& spec,
                                                 const LaunchContext& context) {
  return kernel_of([context, shape = slotted(spec.in[0], spec.in[2]),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    Slotted s = shape;
    s.places = data<const int32_t>(call.in, 2);
    const int64_t slots = s.rows * s.slots;
    if (slots == 0) return;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch(
          context.stream, "combine_weight_grad",
          Grid{static_cast<unsigned>((slots + kSlotWarps - 1) / kSlotWarps), dim3(32, kSlotWarps)},
          combine_weight_grad_kernel<T>, s, data<const T>(call.in, 0), data<const T>(call.in, 1),
          data<float>(call.out, 0));
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
