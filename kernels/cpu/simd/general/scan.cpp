// scan: running sums of lines. Order, which depends on shapes alone: 64 elements in f32, and these sums in f64; integers wrap
// around. Minimum memory traffic: the operand and the result once.
#include <algorithm>
#include <array>

#include "kernels/cpu/simd/general/with_floats.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"

namespace dstrain::simd {
namespace {

constexpr int64_t kFew = 64;
// Sums that are computed at the same time, so that none waits for the one before.
constexpr int64_t kBlocks = 8;
constexpr int64_t kColumns = 256;

// How elements of a type are added: few in f32, and all in f64.
template <class T>
struct SumsOf {
  using Few = float;
  using All = double;
  static Few read(T x) { return to_float(x); }
};
template <>
struct SumsOf<int32_t> {
  using Few = uint32_t;
  using All = uint32_t;
  static Few read(int32_t x) { return static_cast<uint32_t>(x); }
};

template <class All, class To>
void write(All sum, bool accumulate, To& y) {
  if constexpr (std::is_same_v<To, int32_t>) {
    y = static_cast<int32_t>(accumulate ? static_cast<uint32_t>(y) + sum : sum);
  } else {
    const auto value = static_cast<float>(sum);
    y = from_float<To>(accumulate ? to_float(y) + value : value);
  }
}

// A line in the order in which it is added.
template <class T, class To>
struct Line {
  const T* x = nullptr;
  To* y = nullptr;
  int64_t step = 1;  // -1: from its end
  bool exclusive = false, accumulate = false;
};

// Writes the sums of n elements from element `begin` on, in blocks, which follow `before`.
template <class T, class To>
void scan_blocks(const Line<T, To>& line, int64_t begin, int64_t n,
                 typename SumsOf<T>::All& before) {
  using Sums = SumsOf<T>;
  using All = typename Sums::All;
  std::array<typename Sums::Few, kBlocks * kFew> sums;
  std::array<typename Sums::Few, kBlocks> last{};
  const T* const x = line.x + begin * line.step;
  const auto add = [&](int64_t block, int64_t k) {
    const int64_t i = block * kFew + k;
    const auto without = last[static_cast<size_t>(block)];
    const auto with = without + Sums::read(x[i * line.step]);
    sums[static_cast<size_t>(i)] = line.exclusive ? without : with;
    last[static_cast<size_t>(block)] = with;
  };
  if (n == kBlocks * kFew) {
    for (int64_t k = 0; k < kFew; ++k)
      for (int64_t block = 0; block < kBlocks; ++block) add(block, k);
  } else {
    for (int64_t i = 0; i < n; ++i) add(i / kFew, i % kFew);
  }
  To* const y = line.y + begin * line.step;
  for (int64_t first = 0; first < n; first += kFew) {
    for (int64_t i = first; i < std::min(n, first + kFew); ++i)
      write(before + static_cast<All>(sums[static_cast<size_t>(i)]), line.accumulate,
            y[i * line.step]);
    before += static_cast<All>(last[static_cast<size_t>(first / kFew)]);
  }
}

template <class T, class To>
void scan_line(const Line<T, To>& line, int64_t size) {
  typename SumsOf<T>::All before{};
  for (int64_t begin = 0; begin < size; begin += kBlocks * kFew)
    scan_blocks(line, begin, std::min(kBlocks * kFew, size - begin), before);
}

// Lines side by side, at most kColumns of them, whose elements are `apart` elements from each other.
template <class T, class To>
void scan_columns(const Line<T, To>& first, const Lines& lines, int64_t columns) {
  using Sums = SumsOf<T>;
  using All = typename Sums::All;
  std::array<typename Sums::Few, kColumns> few{};
  std::array<All, kColumns> before{};
  for (int64_t i = 0; i < lines.size; ++i) {
    if (i > 0 && i % kFew == 0)
      for (size_t c = 0; c < static_cast<size_t>(columns); ++c) {
        before[c] += static_cast<All>(few[c]);
        few[c] = 0;
      }
    const T* const x = first.x + i * first.step * lines.apart;
    To* const y = first.y + i * first.step * lines.apart;
    for (int64_t column = 0; column < columns; ++column) {
      const auto c = static_cast<size_t>(column);
      const auto with = few[c] + Sums::read(x[column]);
      write(before[c] + static_cast<All>(first.exclusive ? few[c] : with), first.accumulate,
            y[column]);
      few[c] = with;
    }
  }
}

template <class T, class To>
void scan_all(const ScanAttrs& attrs, int threads, int64_t n, const T* x, bool accumulate, To* y) {
  const auto [size, apart] = attrs.lines;
  const auto line_at = [&, size = size, apart = apart](int64_t element) {
    if (attrs.reversed) element += (size - 1) * apart;
    return Line<T, To>{x + element, y + element, attrs.reversed ? -1 : 1, attrs.exclusive,
                       accumulate};
  };
  const int64_t grain = std::max<int64_t>(1, kFlatGrain / size);
  if (apart == 1)
    return parallel_ranges(threads, n / size, grain, [&, size = size](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) scan_line(line_at(i * size), size);
    });
  for_parts(threads, n / size / apart, apart, std::max<int64_t>(16, grain),
            [&, size = size, apart = apart](int64_t part, int64_t begin, int64_t end) {
              for (int64_t c = begin; c < end; c += kColumns)
                scan_columns(line_at(part * size * apart + c), attrs.lines,
                             std::min(kColumns, end - c));
            });
}

}  // namespace

std::unique_ptr<Kernel> make_scan(const KernelSpec& spec) {
  return kernel_of([attrs = attrs_as<ScanAttrs>(spec.attrs), threads = spec.threads,
                    n = elements(spec.in[0]), from = spec.in[0].dtype,
                    to = spec.out[0].dtype](const KernelCall& call) {
    const auto scan = [&](auto of_x, auto of_y) {
      using T = decltype(of_x);
      using To = decltype(of_y);
      scan_all(attrs, threads, n, data<const T>(call.in, 0), call.accumulate,
               data<To>(call.out, 0));
    };
    if (from == DType::i32) return scan(int32_t{}, int32_t{});
    with_floats(from, [&](auto of_x) { with_floats(to, [&](auto of_y) { scan(of_x, of_y); }); });
  });
}

}  // namespace dstrain::simd
