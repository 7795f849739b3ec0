// scan: running sums of lines. Order, which depends on shapes alone and is that of processors: blocks of 64 elements in f32,
// and the sums of blocks in f64; integers wrap around. A thread has a block; it adds it twice, before and after the sums of
// blocks have been added. Minimum memory traffic: the operand twice, and the result.
#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int64_t kBlock = 64;

// A block of a line: its first element in the order in which it is added, and how far it is to the next.
struct Block {
  int64_t line, number, first, step;
  int count;
};

// The lines of a scan, and the blocks of a line.
struct DeviceLines {
  int64_t size, apart, lines, blocks;
  bool reversed, exclusive;

  // Returns the block of thread `at`. Lines lie side by side where their elements are apart.
  __device__ Block block(int64_t at) const {
    const int64_t line = apart == 1 ? at / blocks : at % lines,
                  number = apart == 1 ? at % blocks : at / lines;
    const int64_t begin = number * kBlock, place = reversed ? size - 1 - begin : begin;
    const int64_t left = size - begin;
    return {line, number, (line / apart * size + place) * apart + line % apart,
            reversed ? -apart : apart, static_cast<int>(left < kBlock ? left : kBlock)};
  }
};

DeviceLines lines_of(const KernelSpec& spec) {
  const auto attrs = attrs_as<ScanAttrs>(spec.attrs);
  const auto [size, apart] = attrs.lines;
  return {size,
          apart,
          attrs.lines.count(elements(spec.in[0])),
          (size + kBlock - 1) / kBlock,
          attrs.reversed,
          attrs.exclusive};
}

// How elements of a type are added: few in f32, and all in f64. A sum of either takes 8 bytes of scratch memory.
template <class T>
struct SumsOf {
  using Few = float;
  using All = double;
  __device__ static float read(T x) { return widen(x); }
};
template <>
struct SumsOf<int32_t> {
  using Few = uint32_t;
  using All = uint64_t;
  __device__ static uint32_t read(int32_t x) { return static_cast<uint32_t>(x); }
};

template <class T, class All>
struct BlockSums {
  DeviceLines of;
  const T* x;
  All* sums;  // (lines, blocks)

  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    const Block block = of.block(at);
    const T* from = x + block.first;
    typename SumsOf<T>::Few sum = 0;
    for (int k = 0; k < block.count; ++k, from += block.step) sum += SumsOf<T>::read(*from);
    sums[block.line * of.blocks + block.number] = static_cast<All>(sum);
  }
};

// Makes the sums of the blocks before of the sums of blocks.
template <class All>
struct SumsBefore {
  int64_t blocks;
  All* sums;

  __device__ void operator()(int64_t line, int64_t n) const {
    if (line < 0 || line >= n) return;
    All before = 0;
    for (int64_t b = line * blocks; b < (line + 1) * blocks; ++b) {
      const All own = sums[b];
      sums[b] = before;
      before += own;
    }
  }
};

template <class T, class To, class All>
struct RunningSums {
  DeviceLines of;
  const T* x;
  const All* sums;
  To* y;
  bool accumulate;

  __device__ void write(All sum, To& to) const {
    if constexpr (std::is_same_v<To, int32_t>) {
      const auto value = static_cast<uint32_t>(sum);
      to = static_cast<int32_t>(accumulate ? static_cast<uint32_t>(to) + value : value);
    } else {
      const auto value = static_cast<float>(sum);
      to = narrow<To>(accumulate ? widen(to) + value : value);
    }
  }

  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    const Block block = of.block(at);
    const All before = sums[block.line * of.blocks + block.number];
    typename SumsOf<T>::Few sum = 0;
    int64_t i = block.first;
#pragma unroll 4
    for (int k = 0; k < block.count; ++k, i += block.step) {
      const auto with = sum + SumsOf<T>::read(x[i]);
      write(before + static_cast<All>(of.exclusive ? sum : with), y[i]);
      sum = with;
    }
  }
};

template <class T, class To>
void scan(const LaunchContext& context, const DeviceLines& of, const KernelCall& call) {
  using All = typename SumsOf<T>::All;
  static_assert(sizeof(All) == sizeof(double));
  const int64_t blocks = of.lines * of.blocks;
  All* const sums = workspace<All>(call, blocks);
  const T* const x = data<const T>(call.in, 0);
  To* const y = data<To>(call.out, 0);
  const All* const anchor = nullptr;
  launch_flat<1>(context, "scan (blocks)", anchor, blocks, BlockSums<T, All>{of, x, sums});
  launch_flat<1>(context, "scan (before)", anchor, of.lines, SumsBefore<All>{of.blocks, sums});
  launch_flat<1>(context, "scan", anchor, blocks,
                 RunningSums<T, To, All>{of, x, sums, y, call.accumulate});
}

}  // namespace

int64_t scan_workspace(const KernelSpec& spec) {
  const DeviceLines of = lines_of(spec);
  return of.lines * of.blocks * static_cast<int64_t>(sizeof(double));
}

std::unique_ptr<Kernel> make_scan(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of([context, of = lines_of(spec), from = spec.in[0].dtype,
                    to = spec.out[0].dtype](const KernelCall& call) {
    if (from == DType::i32) return scan<int32_t, int32_t>(context, of, call);
    with_type(from, [&](auto of_x) {
      with_type(to, [&](auto of_y) { scan<decltype(of_x), decltype(of_y)>(context, of, call); });
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
