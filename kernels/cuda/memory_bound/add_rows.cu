// add_rows: y = x + the table's row of each row's position. Minimum memory traffic in bytes, s bytes per element: 2 s R C, as
// a row of the table is read from memory at most once.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kRowsOfBlock = 8;  // one warp per row

// y may be x. `documents` may be null.
// SASS <?*16, true>: threads 256, blocks 4, loads 8
template <class T, bool kAligned>
__global__ void __launch_bounds__(32 * kRowsOfBlock, 4)
    add_rows_kernel(const T* x, const T* table, const int32_t* documents, T* y, int64_t rows,
                    int64_t first_row, int64_t seq_len, int64_t c) {
  constexpr int kN = pack_of(sizeof(T));
  constexpr int kAhead = kAligned ? 4 : 1;  // packs that a lane loads at a time
  const int64_t r = static_cast<int64_t>(blockIdx.x) * kRowsOfBlock + threadIdx.y;
  if (r >= rows) return;
  const int64_t place = (first_row + r) % seq_len - (documents ? documents[r] : 0);
  const T *from = x + r * c, *beside = table + place * c;
  T* to = y + r * c;
  const int64_t begin = kAligned ? 0 : pack_start<kN>(to);
  for (int64_t first = begin + kN * static_cast<int64_t>(threadIdx.x); first < c;
       first += kAhead * kN * 32) {
    if constexpr (kAligned) {
      PackOf<true, T, kN> values[kAhead], places[kAhead];
#pragma unroll
      for (int j = 0; j < kAhead; ++j) values[j].load(from, first + j * kN * 32, c);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) places[j].load(beside, first + j * kN * 32, c);
#pragma unroll
      for (int j = 0; j < kAhead; ++j) {
        float v[kN], p[kN];
        values[j].widen_to(v);
        places[j].widen_to(p);
#pragma unroll
        for (int k = 0; k < kN; ++k) v[k] += p[k];
        store_pack<true>(v, to, first + j * kN * 32, c);
      }
    } else {
      float v[kN], p[kN];
      load(from, first, c, v);  // other lanes may write what is beside it
      load_constant(beside, first, c, p);
#pragma unroll
      for (int k = 0; k < kN; ++k) v[k] += p[k];
      store(v, to, first, c);
    }
  }
}

}  // namespace

std::unique_ptr<Kernel> make_add_rows(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, r = rows(spec.in[0]), c = columns(spec.in[0]),
                    attrs = attrs_as<EmbedAttrs>(spec.attrs),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    if (r == 0) return;
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      const T *x = data<const T>(call.in, 0), *table = data<const T>(call.in, 1);
      T* y = data<T>(call.out, 0);
      with_flag(whole_packs<pack_of(sizeof(T))>(c, x, table, y), [&](auto aligned) {
        launch(context.stream, "add_rows",
               Grid{static_cast<unsigned>((r + kRowsOfBlock - 1) / kRowsOfBlock),
                    dim3(32, kRowsOfBlock)},
               add_rows_kernel<T, decltype(aligned)::value>, x, table,
               data<const int32_t>(call.in, 2), y, r, attrs.part.first, attrs.seq_len, c);
      });
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
