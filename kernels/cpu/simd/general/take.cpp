// take and put: elements that operands of indices name. Both walk through runs of indices along the last dimension of the
// space: where the indices are the same over a run, its elements are a row of the table. Minimum memory traffic: the indices,
// what is taken or put, and as much of the table.
#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

#include "kernels/cpu/simd/general/with_floats.h"
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"
#include "kernels/take_walk.h"

namespace dstrain::simd {
namespace {

// A walk with the operands of a call.
struct TakeRun : TakeWalk {
  std::vector<const int32_t*> data{};

  TakeRun(const TakeWalk& walk, std::span<const Tensor> operands) : TakeWalk(walk) {
    for (size_t i = 0; i < indices.size(); ++i)
      data.push_back(dstrain::data<const int32_t>(operands, i + 1));
  }

  // Returns the first element of row `row` of each view.
  std::array<int64_t, 5> row_starts(int64_t row) const {
    std::array<int64_t, 5> starts{};
    for (size_t i = 0; i < views.size(); ++i) starts[i] = views[i].offset;
    for (int d = space.rank - 2; d >= 0; --d) {
      const int64_t index = row % space[d];
      row /= space[d];
      for (size_t i = 0; i < views.size(); ++i)
        starts[i] += index * views[i].strides[static_cast<size_t>(d)];
    }
    return starts;
  }

  // Returns how much further on the table the indices point from `starts` on, `column` of the row; -1: they are outside.
  int64_t further(const std::array<int64_t, 5>& starts, int64_t column) const {
    int64_t sum = 0;
    for (size_t i = 0; i < indices.size(); ++i) {
      int64_t index = data[i][starts[i + 1] + column * stride(i + 1)];
      if (index < 0) index += indices[i].size;
      if (index < 0 || index >= indices[i].size) return -1;
      sum += index * indices[i].stride;
    }
    return sum;
  }
};

template <class T, class To>
void take_rows(const TakeRun& walk, const T* table, bool accumulate, To* out, int64_t begin,
               int64_t end) {
  const int64_t columns = walk.columns(), step = walk.stride(0);
  const bool by_row = walk.by_row();
  for (int64_t row = begin; row < end; ++row) {
    const auto starts = walk.row_starts(row);
    int64_t further = by_row ? walk.further(starts, 0) : 0;
    To* const to = out + row * columns;
    for (int64_t c = 0; c < columns; ++c) {
      if (!by_row) further = walk.further(starts, c);
      const float value = further < 0 ? std::numeric_limits<float>::quiet_NaN()
                                      : to_float(table[starts[0] + c * step + further]);
      to[c] = from_float<To>(accumulate ? to_float(to[c]) + value : value);
    }
  }
}

// Adds columns [begin, end) of all rows to the table.
template <class T>
void put_columns(const TakeRun& walk, const T* values, float* table, int64_t begin, int64_t end) {
  const int64_t step = walk.stride(0);
  const bool by_row = walk.by_row();
  for (int64_t row = 0; row < walk.rows(); ++row) {
    const auto starts = walk.row_starts(row);
    int64_t further = by_row ? walk.further(starts, 0) : 0;
    const T* const from = values + row * walk.columns();
    for (int64_t c = begin; c < end; ++c) {
      if (!by_row) further = walk.further(starts, c);
      if (further >= 0) table[starts[0] + c * step + further] += to_float(from[c]);
    }
  }
}

}  // namespace

std::unique_ptr<Kernel> make_take(const KernelSpec& spec) {
  const TakeWalk walk(attrs_as<TakeAttrs>(spec.attrs));
  return kernel_of([walk, threads = spec.threads, from = spec.in[0].dtype,
                    to = spec.out[0].dtype](const KernelCall& call) {
    const TakeRun here(walk, call.in);
    const int64_t grain = row_grain(here.columns() * size_of(to));
    parallel_ranges(threads, here.rows(), grain, [&](int64_t begin, int64_t end) {
      with_floats(from, [&](auto of_table) {
        with_floats(to, [&](auto of_result) {
          take_rows(here, data<const decltype(of_table)>(call.in, 0), call.accumulate,
                    data<decltype(of_result)>(call.out, 0), begin, end);
        });
      });
    });
  });
}

int64_t put_workspace(const KernelSpec& spec) {
  if (spec.out[0].dtype == DType::f32) return 0;
  return elements(spec.out[0]) * static_cast<int64_t>(sizeof(float));
}

std::unique_ptr<Kernel> make_put(const KernelSpec& spec) {
  const TakeWalk walk(attrs_as<TakeAttrs>(spec.attrs));
  return kernel_of([walk, threads = spec.threads, from = spec.in[0].dtype,
                    out = spec.out[0]](const KernelCall& call) {
    const TakeRun here(walk, call.in);
    const int64_t n = elements(out);
    const bool exact = out.dtype == DType::f32;
    float* const table = exact ? data<float>(call.out, 0) : workspace<float>(call, n);
    if (!exact || !call.accumulate) std::fill_n(table, n, 0.0f);
    // One thread keeps the order of additions, unless threads have columns of their own.
    parallel_ranges(here.columns_are_apart() ? threads : 1, here.columns(), 64,
                    [&](int64_t begin, int64_t end) {
                      with_floats(from, [&](auto type) {
                        put_columns(here, data<const decltype(type)>(call.in, 0), table, begin,
                                    end);
                      });
                    });
    if (exact) return;
    with_floats(out.dtype, [&](auto type) {
      using T = decltype(type);
      T* const to = data<T>(call.out, 0);
      for (int64_t i = 0; i < n; ++i)
        to[i] = from_float<T>(call.accumulate ? to_float(to[i]) + table[i] : table[i]);
    });
  });
}

}  // namespace dstrain::simd
