// split_columns and join_columns. A thread writes one pack of 16 bytes, or one element where blocks of columns do not
// consist of whole aligned packs. Minimum memory traffic in bytes, s bytes per element of N columns with K copies:
// split_columns s R N (1 + K), join_columns the same.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

// Where blocks of `width` packs are in whole rows (R, sections, blocks, width) and in parts (blocks, copies, R, sections,
// width). Packs are counted in 32 bits, which are divided faster than 64.
struct ColumnBlocks {
  unsigned rows, sections, blocks, copies, width;

  // Returns the number of a pack in the whole rows.
  __device__ __forceinline__ int64_t whole(unsigned row, unsigned section, unsigned block,
                                           unsigned at) const {
    return ((static_cast<int64_t>(row) * sections + section) * blocks + block) * width + at;
  }
  // Returns the number of a copy of it in the parts.
  __device__ __forceinline__ int64_t split(unsigned part, unsigned row, unsigned section,
                                           unsigned at) const {
    return ((static_cast<int64_t>(part) * rows + row) * sections + section) * width + at;
  }
};

// *to = values, in one access.
template <class T, int N>
__device__ __forceinline__ void store_values(Packed<T, N>* to, const Packed<T, N>& values) {
  if constexpr (N == 1)
    *to = values;
  else
    store_whole(to, values);
}

template <class T, int N>
struct SplitColumns {
  ColumnBlocks b;
  const Packed<T, N>* x;
  Packed<T, N>* y;
  __device__ void operator()(int64_t at, int64_t) const {
    const auto pack = static_cast<unsigned>(at / N);
    const unsigned run = pack / b.width, row_of_part = run / b.sections;
    const unsigned part = row_of_part / b.rows;
    const int64_t from = b.whole(row_of_part % b.rows, run % b.sections, part / b.copies,
                                 pack % b.width);
    store_values(y + pack, x[from]);
  }
};

template <class T, int N>
struct JoinColumns {
  ColumnBlocks b;
  const Packed<T, N>* x;
  Packed<T, N>* y;
  __device__ void operator()(int64_t at, int64_t) const {
    const auto pack = static_cast<unsigned>(at / N);
    const unsigned run = pack / b.width, section_of_row = run / b.blocks;
    const int64_t from = b.split(run % b.blocks * b.copies, section_of_row / b.sections,
                                 section_of_row % b.sections, pack % b.width);
    Packed<T, N> sum = x[from];
    if (b.copies > 1) {
      const int64_t step = int64_t{b.rows} * b.sections * b.width;
      float total[N];
#pragma unroll
      for (int k = 0; k < N; ++k) total[k] = widen(sum.v[k]);
#pragma unroll 4
      for (unsigned copy = 1; copy < b.copies; ++copy) {
        const Packed<T, N> other = x[from + copy * step];
#pragma unroll
        for (int k = 0; k < N; ++k) total[k] += widen(other.v[k]);
      }
#pragma unroll
      for (int k = 0; k < N; ++k) sum.v[k] = narrow<T>(total[k]);
    }
    store_values(y + pack, sum);
  }
};

// Launches the kernel of Op for `n` elements of y, in rows (or parts of rows) of blocks of `b.width` elements.
template <template <class, int> class Op, class T>
void launch_columns(const LaunchContext& context, const char* name, ColumnBlocks b, const T* x,
                    T* y, int64_t n) {
  constexpr int kN = pack_of(sizeof(T));
  with_flag(whole_packs<kN>(b.width, x, y), [&](auto aligned) {
    constexpr int kOfThread = decltype(aligned)::value ? kN : 1;
    using Pack = Packed<T, kOfThread>;
    b.width /= kOfThread;
    launch_flat<kOfThread>(context, name, y, n,
                           Op<T, kOfThread>{b, reinterpret_cast<const Pack*>(x),
                                            reinterpret_cast<Pack*>(y)});
  });
}

// Returns where blocks are in `whole` rows, with their width in elements.
ColumnBlocks blocks_of(const KernelSpec& spec, const TensorSpec& whole) {
  const auto attrs = attrs_as<ColumnsAttrs>(spec.attrs);
  const int64_t blocks = attrs.parts / attrs.copies;
  check(whole.shape.elements() * attrs.copies <= UINT32_MAX,
        "{} of {} elements, {} copies of each; there can be at most 2^32 - 1", name_of(spec.op),
        whole.shape.elements(), attrs.copies);
  return {static_cast<unsigned>(rows(whole)), static_cast<unsigned>(attrs.sections),
          static_cast<unsigned>(blocks), static_cast<unsigned>(attrs.copies),
          static_cast<unsigned>(columns(whole) / (attrs.sections * blocks))};
}

}  // namespace

std::unique_ptr<Kernel> make_split_columns(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, b = blocks_of(spec, spec.in[0]), n = elements(spec.out[0]),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch_columns<SplitColumns>(context, "split_columns", b, data<const T>(call.in, 0),
                                   data<T>(call.out, 0), n);
    });
  });
}

std::unique_ptr<Kernel> make_join_columns(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, b = blocks_of(spec, spec.out[0]), n = elements(spec.out[0]),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch_columns<JoinColumns>(context, "join_columns", b, data<const T>(call.in, 0),
                                  data<T>(call.out, 0), n);
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
