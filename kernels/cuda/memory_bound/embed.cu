// embed and embed_position_grad. Minimum memory traffic in bytes, s bytes per element: embed 2 s R C, as a row of the
// tables is read from memory at most once; embed_position_grad s R C + 4 T C.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kRowsOfBlock = 8;  // one warp per row

// x = token[ids] + position; position may be null.
template <class T>
__global__ void __launch_bounds__(32 * kRowsOfBlock)
    embed_kernel(const int32_t* ids, const T* token, const T* position, T* x, int64_t rows,
                 int64_t seq_len, int64_t c) {
  constexpr int kN = pack_of(sizeof(T));
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.y;
  if (r >= rows) return;
  const T* from = token + ids[r] * c;
  const T* beside = position ? position + r % seq_len * c : nullptr;
  T* to = x + r * c;
  for (int64_t at = pack_start<kN>(to) + kN * static_cast<int64_t>(threadIdx.x); at < c;
       at += kN * 32) {
    float v[kN];
    load_constant(from, at, c, v);
    if (beside) {
      float p[kN];
      load_constant(beside, at, c, p);
#pragma unroll
      for (int k = 0; k < kN; ++k) v[k] += p[k];
    }
    store(v, to, at, c);
  }
}

// The sum over the samples in order, added once.
template <class T>
struct PositionGrad {
  static constexpr int kN = 4;
  const T* d_x;
  float* d_position;
  int64_t samples;
  bool add;
  __device__ void operator()(int64_t at, int64_t n) const {
    float total[kN] = {};
#pragma unroll 4
    for (int64_t b = 0; b < samples; ++b) {
      float v[kN];
      load_constant(d_x + b * n, at, n, v);
#pragma unroll
      for (int k = 0; k < kN; ++k) total[k] += v[k];
    }
    if (add) {
      float before[kN];
      load(d_position, at, n, before);
#pragma unroll
      for (int k = 0; k < kN; ++k) total[k] = before[k] + total[k];
    }
    store(total, d_position, at, n);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_embed(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, r = elements(spec.in[0]), c = columns(spec.in[1]),
                    seq_len = attrs_as<EmbedAttrs>(spec.attrs).seq_len,
                    dtype = spec.out[0].dtype](const KernelCall& call) {
    if (r == 0) return;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch(context.stream, "embed",
             Grid{static_cast<unsigned>((r + kRowsOfBlock - 1) / kRowsOfBlock),
                  dim3(32, kRowsOfBlock)},
             embed_kernel<T>, data<const int32_t>(call.in, 0), data<const T>(call.in, 1),
             data<const T>(call.in, 2), data<T>(call.out, 0), r, seq_len, c);
    });
  });
}

std::unique_ptr<Kernel> make_embed_position_grad(const KernelSpec& spec,
                                                 const LaunchContext& context) {
  return kernel_of([context, n = elements(spec.out[0]), in = elements(spec.in[0]),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    if (n == 0) return;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      float* d_position = data<float>(call.out, 0);
      launch_flat<PositionGrad<T>::kN>(
          context, "embed_position_grad", d_position, n,
          PositionGrad<T>{data<const T>(call.in, 0), d_position, in / n, call.accumulate});
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
