// scan: running sums of lines. Order, which depends on shapes alone: 64 elements in f32, and these sums in f64; integers wrap
// around. Minimum memory traffic: the operand and the result once.
#include <algorithm>
#include <array>

#include "kernels/cpu/memory_bound/general/move_values.h"
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

namespace dstrain::simd {
namespace {

constexpr int64_t kFew = 64;
// Sums that are computed at the same time, so that none waits for the one before.
constexpr int64_t kBlocks = 8;
constexpr int64_t kColumns = kBlocks * kFew;

// Sums of values: few are added in f32, and all in f64. Of integers: in 32 bits.
template <class Few, class All>
struct Scan {
  ScanAttrs attrs{};
  DType from{}, to{};
  void *x = nullptr, *y = nullptr;
  bool accumulate = false;

  using Tile = std::array<Few, static_cast<size_t>(kColumns)>;

  // Returns n elements from `element` on, in their place or in the tile.
  const Few* read(int64_t element, int64_t n, Tile& tile) const {
    if (size_of(from) == sizeof(Few)) return static_cast<const Few*>(x) + element;
    move_values({from, static_cast<char*>(x) + element * size_of(from)}, {DType::f32, tile.data()},
                n, false);
    return tile.data();
  }
  // Returns where results from `element` on are computed: in their place, or in the tile, from which write() takes them.
  Few* place(int64_t element, Tile& tile) const {
    return size_of(to) == sizeof(Few) && !accumulate ? static_cast<Few*>(y) + element : tile.data();
  }
  void write(Few* sums, int64_t element, int64_t n) const {
    if (sums == static_cast<Few*>(y) + element) return;
    if (to != DType::i32)
      return move_values({DType::f32, sums}, {to, static_cast<char*>(y) + element * size_of(to)}, n,
                         accumulate);
    for (int64_t i = 0; i < n; ++i) static_cast<Few*>(y)[element + i] += sums[i];
  }

  // Sets `sums` to the running sums of each of the blocks of n elements. Returns the blocks' sums.
  template <bool kExclusive>
  static std::array<Few, kBlocks> add_blocks(const Few* x, int64_t n, Few* sums) {
    std::array<Few, kBlocks> all{};
    const auto add = [&](int64_t block, int64_t k) {
      const int64_t i = block * kFew + k;
      Few& sum = all[static_cast<size_t>(block)];
      const Few with = sum + x[i];
      sums[i] = kExclusive ? sum : with;
      sum = with;
    };
    if (n == kBlocks * kFew) {
      for (int64_t k = 0; k < kFew; ++k)
        for (int64_t block = 0; block < kBlocks; ++block) add(block, k);
    } else {
      for (int64_t i = 0; i < n; ++i) add(i / kFew, i % kFew);
    }
    return all;
  }

  // A line whose elements lie side by side from `first` on.
  template <bool kReversed, bool kExclusive>
  void line(int64_t first) const {
    Tile read_to, turned, of_blocks, results;
    All before = 0;
    const int64_t size = attrs.lines.size;
    for (int64_t begin = 0, n = 0; begin < size; begin += n) {
      n = std::min(kBlocks * kFew, size - begin);
      const int64_t element = first + (kReversed ? size - begin - n : begin);
      const Few* in_order = read(element, n, read_to);
      if (kReversed) {
        std::reverse_copy(in_order, in_order + n, turned.data());
        in_order = turned.data();
      }
      const auto all = add_blocks<kExclusive>(in_order, n, of_blocks.data());
      Few* const sums = place(element, results);
      for (int64_t i = 0, block = 0; i < n; ++block) {
        for (const int64_t end = std::min(n, i + kFew); i < end; ++i)
          sums[kReversed ? n - 1 - i : i] =
              static_cast<Few>(before + static_cast<All>(of_blocks[static_cast<size_t>(i)]));
        before += static_cast<All>(all[static_cast<size_t>(block)]);
      }
      write(sums, element, n);
    }
  }

  // Lines side by side, at most kColumns of them, from `first` on.
  template <bool kReversed, bool kExclusive>
  void columns(int64_t first, int64_t count) const {
    Tile few{}, read_to, results;
    std::array<All, static_cast<size_t>(kColumns)> before{};
    const auto [size, apart] = attrs.lines;
    for (int64_t i = 0; i < size; ++i) {
      if (i > 0 && i % kFew == 0)
        for (size_t c = 0; c < static_cast<size_t>(count); ++c) {
          before[c] += static_cast<All>(few[c]);
          few[c] = 0;
        }
      const int64_t element = first + (kReversed ? size - 1 - i : i) * apart;
      const Few* const here = read(element, count, read_to);
      Few* const sums = place(element, results);
      for (size_t c = 0; c < static_cast<size_t>(count); ++c) {
        const Few with = few[c] + here[c];
        sums[c] = static_cast<Few>(before[c] + static_cast<All>(kExclusive ? few[c] : with));
        few[c] = with;
      }
      write(sums, element, count);
    }
  }

  template <bool kReversed, bool kExclusive>
  void run(int threads, int64_t n) const {
    const auto [size, apart] = attrs.lines;
    const int64_t grain = std::max<int64_t>(1, kFlatGrain / size);
    if (apart == 1)
      return parallel_ranges(threads, n / size, grain,
                             [this, size = size](int64_t begin, int64_t end) {
                               for (int64_t i = begin; i < end; ++i)
                                 line<kReversed, kExclusive>(i * size);
                             });
    for_parts(threads, n / size / apart, apart, std::max<int64_t>(16, grain),
              [this, of_plane = size * apart](int64_t part, int64_t begin, int64_t end) {
                for (int64_t c = begin; c < end; c += kColumns)
                  columns<kReversed, kExclusive>(part * of_plane + c, std::min(kColumns, end - c));
              });
  }

  void run(int threads, int64_t n) const {
    if (attrs.exclusive)
      attrs.reversed ? run<true, true>(threads, n) : run<false, true>(threads, n);
    else
      attrs.reversed ? run<true, false>(threads, n) : run<false, false>(threads, n);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_scan(const KernelSpec& spec) {
  return kernel_of([attrs = attrs_as<ScanAttrs>(spec.attrs), threads = spec.threads,
                    n = elements(spec.in[0]), from = spec.in[0].dtype,
                    to = spec.out[0].dtype](const KernelCall& call) {
    void* const x = data(call.in, 0);
    void* const y = data(call.out, 0);
    if (from == DType::i32)
      Scan<uint32_t, uint32_t>{attrs, from, to, x, y, call.accumulate}.run(threads, n);
    else
      Scan<float, double>{attrs, from, to, x, y, call.accumulate}.run(threads, n);
  });
}

}  // namespace dstrain::simd
