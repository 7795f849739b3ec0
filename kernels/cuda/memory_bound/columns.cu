// split_columns and join_columns. A thread writes one pack of 16 bytes, or one element where blocks of columns do not
// consist of whole aligned packs. Minimum memory traffic in bytes, s bytes per element of N columns with K copies:
// split_columns s R N (1 + K), join_columns the same.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

// The position of a pack in a tensor of four dimensions, (high, middle, low, at).
struct Position {
  unsigned high, middle, low, at;
};

// The inner dimensions of such a tensor, in packs. Packs are counted in 32 bits, which are divided faster than 64.
struct Nest {
  unsigned middle, low, width;

  __device__ __forceinline__ Position position(unsigned pack) const {
    const unsigned run = pack / width, outer = run / low;
    return {outer / middle, outer % middle, run % low, pack % width};
  }
  // Returns the number of the pack at a position.
  __device__ __forceinline__ int64_t number(const Position& p) const {
    return ((static_cast<int64_t>(p.high) * middle + p.middle) * low + p.low) * width + p.at;
  }
};

// Where blocks of `width` packs are in whole rows (rows, sections, blocks, width) and in parts (blocks x copies, rows,
// sections, width).
struct ColumnBlocks {
  unsigned rows, sections, blocks, copies, width;

  __device__ __forceinline__ Nest whole() const { return {sections, blocks, width}; }
  __device__ __forceinline__ Nest parts() const { return {rows, sections, width}; }
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
    const auto [part, row, section, column] = b.parts().position(pack);
    store_values(y + pack, x[b.whole().number({row, section, part / b.copies, column})]);
  }
};

template <class T, int N>
struct JoinColumns {
  ColumnBlocks b;
  const Packed<T, N>* x;
  Packed<T, N>* y;
  __device__ void operator()(int64_t at, int64_t) const {
    const auto pack = static_cast<unsigned>(at / N);
    const auto [row, section, block, column] = b.whole().position(pack);
    const int64_t from = b.parts().number({block * b.copies, row, section, column});
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
    launch_flat<kOfThread>(
        context, name, y, n,
        Op<T, kOfThread>{b, reinterpret_cast<const Pack*>(x), reinterpret_cast<Pack*>(y)});
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

// Makes the kernel of Op, whose blocks are in `whole` rows and in parts.
template <template <class, int> class Op>
std::unique_ptr<Kernel> make_columns(const KernelSpec& spec, const LaunchContext& context,
                                     const char* name, const TensorSpec& whole) {
  return kernel_of([context, name, b = blocks_of(spec, whole), n = elements(spec.out[0]),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      launch_columns<Op>(context, name, b, data<const T>(call.in, 0), data<T>(call.out, 0), n);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_split_columns(const KernelSpec& spec, const LaunchContext& context) {
  return make_columns<SplitColumns>(spec, context, "split_columns", spec.in[0]);
}

std::unique_ptr<Kernel> make_join_columns(const KernelSpec& spec, const LaunchContext& context) {
  return make_columns<JoinColumns>(spec, context, "join_columns", spec.out[0]);
}

}  // namespace dstrain::DSTRAIN_BACKEND
