// sort: which elements of each line come first. A thread has an element, whose place among others it finds by counting the keys
// (kernels/sort_key.h) that are less: in tiles of 64 elements, then in pairs of sorted runs, twice as long each time, until a
// line is one run. A run has no more keys than are kept. Minimum memory traffic: the operand, the indices, and the keys once for
// each time.
#include <utility>

#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/sort_key.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int64_t kTile = 64;

// The lines of a sort.
struct SortedLines {
  int64_t size, apart, kept, lines, keys;  // keys: at most so many of a line are in memory
  bool descending;

  // Returns the first element of a line with so many elements in a plane.
  __device__ int64_t element(int64_t line, int64_t i, int64_t of_plane) const {
    return (line / apart * of_plane + i) * apart + line % apart;
  }
};

// Runs of `length` elements of a line, of which the first `most` keys are kept, one run after the other.
struct Runs {
  int64_t length, most;

  __host__ __device__ int64_t count(int64_t size) const { return (size + length - 1) / length; }
  // Returns how many keys of run `r` there are, and of all.
  __host__ __device__ int64_t keys_of(int64_t r, int64_t size) const {
    const int64_t left = size - r * length;
    return left < most ? left : most;
  }
  __host__ __device__ int64_t keys(int64_t size) const {
    const int64_t last = count(size) - 1;
    return last * most + keys_of(last, size);
  }
};

Runs runs_of(int64_t length, int64_t kept) {
  return {length, length < kept ? length : kept};
}

// Where keys go: to memory, or as indices to the result.
struct SortedKeys {
  uint64_t* keys;
  int32_t* indices;  // not null: of sorted lines

  __device__ void write(const SortedLines& of, int64_t line, int64_t at, uint64_t key) const {
    if (indices)
      indices[of.element(line, at, of.kept)] = index_of_key(key);
    else
      keys[line * of.keys + at] = key;
  }
};

template <class T>
struct SortTiles {
  SortedLines of;
  Runs to;
  const T* x;
  SortedKeys out;

  __device__ uint64_t key(int64_t line, int64_t i) const {
    const T value = x[of.element(line, i, of.size)];
    uint32_t order = 0;
    if constexpr (std::is_same_v<T, int32_t>)
      order = order_of_integer(value);
    else
      order = order_of_float(__float_as_uint(widen(value)));
    return sort_key(order, of.descending, i);
  }

  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    // Lines lie side by side where their elements are apart.
    const int64_t line = of.apart == 1 ? at / of.size : at % of.lines,
                  i = of.apart == 1 ? at % of.size : at / of.lines;
    const uint64_t own = key(line, i);
    const int64_t run = i / kTile, begin = run * kTile, end = begin + kTile;
    int64_t less = 0;
    for (int64_t k = begin; k < (end < of.size ? end : of.size); ++k)
      less += key(line, k) < own ? 1 : 0;
    if (less < to.most) out.write(of, line, run * to.most + less, own);
  }
};

struct MergeRuns {
  SortedLines of;
  Runs from, to;
  int64_t of_line;  // keys of a line
  const uint64_t* keys;
  SortedKeys out;

  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    const int64_t line = at / of_line, i = at % of_line, run = i / from.most;
    const uint64_t* const own = keys + line * of.keys;
    const int64_t other = run ^ 1;
    int64_t place = i - run * from.most;
    if (other < from.count(of.size)) {
      // How many keys of the other run are less.
      int64_t low = 0, high = from.keys_of(other, of.size);
      const uint64_t* const others = own + other * from.most;
      while (low < high) {
        const int64_t middle = (low + high) / 2;
        if (others[middle] < own[i])
          low = middle + 1;
        else
          high = middle;
      }
      place += low;
    }
    if (place < to.most) out.write(of, line, run / 2 * to.most + place, own[i]);
  }
};

SortedLines sorted_lines(const KernelSpec& spec) {
  const auto attrs = attrs_as<SortAttrs>(spec.attrs);
  const auto [size, apart] = attrs.lines;
  return {size,
          apart,
          attrs.kept,
          attrs.lines.count(elements(spec.in[0])),
          size <= kTile ? 0 : runs_of(kTile, attrs.kept).keys(size),
          attrs.descending};
}

template <class T>
void sort(const LaunchContext& context, const SortedLines& of, const KernelCall& call) {
  const int64_t all = of.lines * of.keys;
  auto* from = workspace<uint64_t>(call, 2 * all);
  uint64_t* to = from + all;
  auto* const indices = data<int32_t>(call.out, 0);
  const int32_t* const anchor = nullptr;
  // The last runs are sorted lines.
  const auto results = [&](int64_t length, uint64_t* keys) {
    return length < of.size ? SortedKeys{keys, nullptr} : SortedKeys{nullptr, indices};
  };
  Runs runs = runs_of(kTile, of.kept);
  launch_flat<1>(context, "sort (tiles)", anchor, of.lines * of.size,
                 SortTiles<T>{of, runs, data<const T>(call.in, 0), results(kTile, from)});
  while (runs.length < of.size) {
    const Runs merged = runs_of(2 * runs.length, of.kept);
    const int64_t of_line = runs.keys(of.size);
    launch_flat<1>(context, "sort (runs)", anchor, of.lines * of_line,
                   MergeRuns{of, runs, merged, of_line, from, results(merged.length, to)});
    runs = merged;
    std::swap(from, to);
  }
}

}  // namespace

int64_t sort_workspace(const KernelSpec& spec) {
  const SortedLines of = sorted_lines(spec);
  return 2 * of.lines * of.keys * static_cast<int64_t>(sizeof(uint64_t));
}

std::unique_ptr<Kernel> make_sort(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of(
      [context, of = sorted_lines(spec), dtype = spec.in[0].dtype](const KernelCall& call) {
        if (dtype == DType::i32) return sort<int32_t>(context, of, call);
        with_type(dtype, [&](auto type) { sort<decltype(type)>(context, of, call); });
      });
}

}  // namespace dstrain::DSTRAIN_BACKEND
