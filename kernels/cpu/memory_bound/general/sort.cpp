// sort: which elements of each line come first. A thread has whole lines, of whose elements it sorts keys (kernels/sort_key.h).
// Minimum memory traffic: the operand and the indices.
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "kernels/cpu/memory_bound/general/with_floats.h"
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "kernels/sort_key.h"

namespace dstrain::simd {
namespace {

// Up to so many keys are found by inserting each among the first ones; more are sorted by digits.
constexpr int64_t kFewKeys = 64;
constexpr int64_t kMostTogether = 16;  // lines that are sorted at a time

uint32_t order_of(int32_t x) {
  return order_of_integer(x);
}
template <class T>
uint32_t order_of(T x) {
  return order_of_float(std::bit_cast<uint32_t>(to_float(x)));
}

// Sorts keys, which come in the order of their elements, by 8 bits of their order at a time, the lowest first: keys of which
// these are equal stay in order. `more`: room for as many keys. Returns where the sorted keys are: one of the two.
uint64_t* sort_digits(uint64_t* keys, uint64_t* more, int64_t n) {
  constexpr size_t kDigits = 4, kValues = 256;
  const auto digit = [](uint64_t key, size_t d) { return key >> (32 + 8 * d) & (kValues - 1); };
  std::array<std::array<uint32_t, kValues>, kDigits> starts{};
  for (int64_t i = 0; i < n; ++i)
    for (size_t d = 0; d < kDigits; ++d) ++starts[d][digit(keys[i], d)];
  for (size_t d = 0; d < kDigits; ++d) {
    if (starts[d][digit(keys[0], d)] == static_cast<uint64_t>(n)) continue;  // all have the same
    uint32_t start = 0;
    for (uint32_t& count : starts[d]) start += std::exchange(count, start);
    for (int64_t i = 0; i < n; ++i) more[starts[d][digit(keys[i], d)]++] = keys[i];
    std::swap(keys, more);
  }
  return keys;
}

// Sets `first` to the smallest `kept` of n keys, in order.
void insert_keys(const uint64_t* keys, int64_t n, uint64_t* first, int64_t kept) {
  int64_t count = 0;
  for (int64_t i = 0; i < n; ++i) {
    if (count == kept && keys[i] > first[count - 1]) continue;
    if (count < kept) ++count;  // else the last one falls out
    uint64_t* const last = first + count - 1;
    uint64_t* const place = std::lower_bound(first, last, keys[i]);
    std::copy_backward(place, last, last + 1);
    *place = keys[i];
  }
}

// Sorts the keys of a line. `more`: room for as many. Returns where the first `kept` of them are.
const uint64_t* sort_keys(uint64_t* keys, uint64_t* more, int64_t n, int64_t kept) {
  if (kept > kFewKeys) return sort_digits(keys, more, n);
  insert_keys(keys, n, more, kept);
  return more;
}

// The work of a sort: groups of lines that lie side by side, so that what a cache line has is read and written at once.
struct SortWork {
  SortAttrs attrs{};
  int64_t group = 1, groups = 1, parts = 1;

  explicit SortWork(const KernelSpec& spec) : attrs(attrs_as<SortAttrs>(spec.attrs)) {
    const auto [size, apart] = attrs.lines;
    const int64_t n = elements(spec.in[0]);
    group = std::min(kMostTogether, apart);
    groups = n / size / apart * of_plane();
    parts = std::clamp<int64_t>(n / kFlatGrain, 1, std::min<int64_t>(spec.threads, groups));
  }
  // Groups of a plane.
  int64_t of_plane() const { return (attrs.lines.apart + group - 1) / group; }
  // Keys that a part writes: those of its lines, and as many more.
  int64_t keys() const { return 2 * group * attrs.lines.size; }
};

// Sorts `count` lines side by side.
template <class T>
void sort_lines(const SortAttrs& attrs, const T* x, int64_t count, uint64_t* room,
                int32_t* indices) {
  const auto [size, apart] = attrs.lines;
  for (int64_t i = 0; i < size; ++i)
    for (int64_t c = 0; c < count; ++c)
      room[2 * c * size + i] = sort_key(order_of(x[i * apart + c]), attrs.descending, i);
  std::array<const uint64_t*, kMostTogether> sorted{};
  for (int64_t c = 0; c < count; ++c) {
    uint64_t* const keys = room + 2 * c * size;
    sorted[static_cast<size_t>(c)] = sort_keys(keys, keys + size, size, attrs.kept);
  }
  for (int64_t i = 0; i < attrs.kept; ++i)
    for (int64_t c = 0; c < count; ++c)
      indices[i * apart + c] = index_of_key(sorted[static_cast<size_t>(c)][i]);
}

}  // namespace

int64_t sort_workspace(const KernelSpec& spec) {
  const SortWork work(spec);
  return work.parts * work.keys() * static_cast<int64_t>(sizeof(uint64_t));
}

std::unique_ptr<Kernel> make_sort(const KernelSpec& spec) {
  return kernel_of([work = SortWork(spec), dtype = spec.in[0].dtype](const KernelCall& call) {
    const SortAttrs& attrs = work.attrs;
    auto* const room = workspace<uint64_t>(call, work.parts * work.keys());
    auto* const indices = data<int32_t>(call.out, 0);
    const auto sort = [&](auto type) {
      const auto* const x = data<const decltype(type)>(call.in, 0);
      const int64_t apart = attrs.lines.apart;
      const auto sort_group = [&](int64_t number, uint64_t* keys) {
        const int64_t plane = number / work.of_plane(),
                      column = number % work.of_plane() * work.group;
        sort_lines(attrs, x + plane * attrs.lines.size * apart + column,
                   std::min(work.group, apart - column), keys,
                   indices + plane * attrs.kept * apart + column);
      };
      run_parts(work.parts, [&](int64_t part) {
        const int64_t end = work.groups * (part + 1) / work.parts;
        for (int64_t g = work.groups * part / work.parts; g < end; ++g)
          sort_group(g, room + part * work.keys());
      });
    };
    if (dtype == DType::i32) return sort(int32_t{});
    with_floats(dtype, sort);
  });
}

}  // namespace dstrain::simd
