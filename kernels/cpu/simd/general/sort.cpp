// sort: which elements of each line come first. A thread has whole lines, of whose elements it sorts keys (kernels/sort_key.h).
#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "kernels/cpu/simd/general/with_floats.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"
#include "kernels/sort_key.h"

namespace dstrain::simd {
namespace {

// From how many keys on sorting by digits is faster than by comparisons.
constexpr int64_t kManyKeys = 256;

uint32_t order_of(int32_t x) {
  return order_of_integer(x);
}
template <class T>
uint32_t order_of(T x) {
  return order_of_float(std::bit_cast<uint32_t>(to_float(x)));
}

// Sorts keys by the bits of their order, from 8 to the next 8: a key's place in the line is in the others, in which the keys
// come in order. `more`: room for as many keys. Returns where the sorted keys are: one of the two.
uint64_t* sort_digits(uint64_t* keys, uint64_t* more, int64_t n) {
  constexpr size_t kDigits = 4, kValues = 256;
  const auto digit = [](uint64_t key, size_t d) { return key >> (32 + 8 * d) & (kValues - 1); };
  std::array<std::array<int64_t, kValues>, kDigits> starts{};
  for (int64_t i = 0; i < n; ++i)
    for (size_t d = 0; d < kDigits; ++d) ++starts[d][digit(keys[i], d)];
  for (size_t d = 0; d < kDigits; ++d) {
    if (starts[d][digit(keys[0], d)] == n) continue;  // all have the same
    int64_t start = 0;
    for (int64_t& count : starts[d]) start += std::exchange(count, start);
    for (int64_t i = 0; i < n; ++i) more[starts[d][digit(keys[i], d)]++] = keys[i];
    std::swap(keys, more);
  }
  return keys;
}

// Sorts the first `kept` keys of a line to its beginning. Returns where they are.
uint64_t* sort_keys(uint64_t* keys, uint64_t* more, int64_t n, int64_t kept) {
  if (kept == n && n >= kManyKeys) return sort_digits(keys, more, n);
  if (kept < n) std::nth_element(keys, keys + kept - 1, keys + n);
  std::sort(keys, keys + kept);
  return keys;
}

template <class T>
void sort_line(const SortAttrs& attrs, const T* x, uint64_t* room, int32_t* indices) {
  const auto [size, apart] = attrs.lines;
  for (int64_t i = 0; i < size; ++i)
    room[i] = sort_key(order_of(x[i * apart]), attrs.descending, i);
  const uint64_t* const keys = sort_keys(room, room + size, size, attrs.kept);
  for (int64_t i = 0; i < attrs.kept; ++i) indices[i * apart] = index_of_key(keys[i]);
}

// Parts in which a kernel divides its lines.
int64_t parts_of(const KernelSpec& spec) {
  const int64_t lines = attrs_as<SortAttrs>(spec.attrs).lines.count(elements(spec.in[0]));
  return std::clamp<int64_t>(elements(spec.in[0]) / kFlatGrain, 1,
                             std::min<int64_t>(spec.threads, lines));
}

int64_t keys_of(const KernelSpec& spec) {
  return 2 * parts_of(spec) * attrs_as<SortAttrs>(spec.attrs).lines.size;
}

}  // namespace

int64_t sort_workspace(const KernelSpec& spec) {
  return keys_of(spec) * static_cast<int64_t>(sizeof(uint64_t));
}

std::unique_ptr<Kernel> make_sort(const KernelSpec& spec) {
  const auto attrs = attrs_as<SortAttrs>(spec.attrs);
  return kernel_of([attrs, parts = parts_of(spec), keys = keys_of(spec),
                    lines = attrs.lines.count(elements(spec.in[0])),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    auto* const room = workspace<uint64_t>(call, keys);
    auto* const indices = data<int32_t>(call.out, 0);
    const auto [size, apart] = attrs.lines;
    const auto sort = [&, size = size, apart = apart](auto type) {
      const auto* const x = data<const decltype(type)>(call.in, 0);
      run_parts(parts, [&](int64_t part) {
        for (int64_t i = lines * part / parts; i < lines * (part + 1) / parts; ++i) {
          const int64_t plane = i / apart, column = i % apart;
          sort_line(attrs, x + plane * size * apart + column, room + part * 2 * size,
                    indices + plane * attrs.kept * apart + column);
        }
      });
    };
    if (dtype == DType::i32) return sort(int32_t{});
    with_floats(dtype, sort);
  });
}

}  // namespace dstrain::simd
