// take and put: elements that operands of indices name. Both walk through runs of indices along the last dimension of the
// space: where the indices are the same over a run, its elements are a row of the table. Minimum memory traffic: the indices,
// what is taken or put, and as much of the table.
#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

#include "kernels/cpu/memory_bound/general/move_values.h"
#include "kernels/cpu/memory_bound/general/with_floats.h"
#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
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

// Takes elements [begin, end) of the result, a row of one element of each operand of indices at a time: it is a row of the
// table.
void take_rows(const TakeRun& walk, ValueRow table, bool accumulate, ValueRow out, int64_t begin,
               int64_t end) {
  const int64_t from_bytes = size_of(table.dtype), to_bytes = size_of(out.dtype);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (int64_t at = begin, n = 0; at < end; at += n) {
    const int64_t column = at % walk.columns();
    n = std::min(end - at, walk.columns() - column);
    const auto starts = walk.row_starts(at / walk.columns());
    const int64_t further = walk.further(starts, 0);
    const ValueRow to{out.dtype, static_cast<char*>(out.data) + at * to_bytes};
    if (further >= 0)
      move_values({table.dtype,
                   static_cast<char*>(table.data) + (starts[0] + column + further) * from_bytes},
                  to, n, accumulate);
    else
      with_floats(out.dtype, [&](auto type) {
        std::fill_n(static_cast<decltype(type)*>(to.data), n, from_float<decltype(type)>(nan));
      });
  }
}

// Calls f(number of the index, element of the table) for indices [begin, end); element -1: it is outside.
template <class F>
void for_elements(const TakeRun& walk, int64_t begin, int64_t end, const F& f) {
  const int64_t columns = walk.columns(), step = walk.stride(0), step_of_indices = walk.stride(1);
  const bool one = walk.indices.size() == 1;
  const TakeAttrs::Indices first = walk.indices[0];
  for (int64_t at = begin; at < end;) {
    const int64_t column = at % columns, row_end = std::min(end, at - column + columns);
    const auto starts = walk.row_starts(at / columns);
    if (one) {
      const int32_t* indices = walk.data[0] + starts[1] + column * step_of_indices;
      int64_t element = starts[0] + column * step;
      for (; at < row_end; ++at, indices += step_of_indices, element += step) {
        int64_t index = *indices;
        if (index < 0) index += first.size;
        const bool inside = index >= 0 && index < first.size;
        f(at, inside ? element + index * first.stride : -1);
      }
      continue;
    }
    for (int64_t c = column; at < row_end; ++at, ++c) {
      const int64_t further = walk.further(starts, c);
      f(at, further < 0 ? -1 : starts[0] + c * step + further);
    }
  }
}

template <class T, class To>
void take_elements(const TakeRun& walk, const T* table, bool accumulate, To* out, int64_t begin,
                   int64_t end) {
  const auto value_at = [table](int64_t element) {
    return element < 0 ? std::numeric_limits<float>::quiet_NaN() : to_float(table[element]);
  };
  if (accumulate) {
    for_elements(walk, begin, end, [&](int64_t at, int64_t element) {
      out[at] = from_float<To>(to_float(out[at]) + value_at(element));
    });
  } else if constexpr (std::is_same_v<T, To>) {
    const T nan = from_float<T>(std::numeric_limits<float>::quiet_NaN());
    for_elements(walk, begin, end, [&](int64_t at, int64_t element) {
      out[at] = element < 0 ? nan : table[element];
    });
  } else {
    for_elements(walk, begin, end,
                 [&](int64_t at, int64_t element) { out[at] = from_float<To>(value_at(element)); });
  }
}

void take_integers(const TakeRun& walk, const int32_t* table, int32_t* out, int64_t begin,
                   int64_t end) {
  for_elements(walk, begin, end, [&](int64_t at, int64_t element) {
    out[at] = element < 0 ? std::numeric_limits<int32_t>::min() : table[element];
  });
}

// Adds columns [begin, end) of all rows to rows of the table.
void put_columns(const TakeRun& walk, ValueRow values, float* table, int64_t begin, int64_t end) {
  for (int64_t row = 0; row < walk.rows(); ++row) {
    const auto starts = walk.row_starts(row);
    const int64_t further = walk.further(starts, 0);
    if (further < 0) continue;
    const int64_t from = (row * walk.columns() + begin) * size_of(values.dtype);
    move_values({values.dtype, static_cast<char*>(values.data) + from},
                {DType::f32, table + starts[0] + begin + further}, end - begin, true);
  }
}

// Adds the values of indices [begin, end) to the table.
template <class T>
void put_elements(const TakeRun& walk, const T* values, float* table, int64_t begin, int64_t end) {
  for_elements(walk, begin, end, [&](int64_t at, int64_t element) {
    if (element >= 0) table[element] += to_float(values[at]);
  });
}

// Adds all values to the table. What one element gets is added in order, by one thread.
void put_all(const TakeRun& walk, int threads, ValueRow values, float* table) {
  const int64_t columns = walk.columns(), n = walk.rows() * columns;
  if (walk.by_row() && walk.stride(0) == 1)
    return parallel_ranges(
        walk.is_apart(walk.space.rank - 1) ? threads : 1, columns, 64,
        [&](int64_t begin, int64_t end) { put_columns(walk, values, table, begin, end); });
  const int64_t first = walk.space[0], of_first = n / std::max<int64_t>(1, first);
  parallel_ranges(walk.is_apart(0) ? threads : 1, first,
                  std::max<int64_t>(1, kFlatGrain / std::max<int64_t>(1, of_first)),
                  [&](int64_t begin, int64_t end) {
                    with_floats(values.dtype, [&](auto type) {
                      put_elements(walk, static_cast<const decltype(type)*>(values.data), table,
                                   begin * of_first, end * of_first);
                    });
                  });
}

}  // namespace

std::unique_ptr<Kernel> make_take(const KernelSpec& spec) {
  const TakeWalk walk(attrs_as<TakeAttrs>(spec.attrs));
  return kernel_of([walk, threads = spec.threads, from = spec.in[0].dtype,
                    to = spec.out[0].dtype](const KernelCall& call) {
    const TakeRun here(walk, call.in);
    const bool rows = walk.by_row() && walk.stride(0) == 1;
    void* const table = data(call.in, 0);
    void* const out = data(call.out, 0);
    parallel_ranges(
        threads, walk.rows() * walk.columns(), kFlatGrain, [&](int64_t begin, int64_t end) {
          if (from == DType::i32)
            return take_integers(here, static_cast<const int32_t*>(table),
                                 static_cast<int32_t*>(out), begin, end);
          if (rows) return take_rows(here, {from, table}, call.accumulate, {to, out}, begin, end);
          with_floats(from, [&](auto of_table) {
            with_floats(to, [&](auto of_result) {
              take_elements(here, static_cast<const decltype(of_table)*>(table), call.accumulate,
                            static_cast<decltype(of_result)*>(out), begin, end);
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
    if (!exact || !call.accumulate)
      parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
        std::fill_n(table + begin, end - begin, 0.0f);
      });
    put_all(here, threads, {from, data(call.in, 0)}, table);
    if (exact) return;
    parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
      void* const to = data<char>(call.out, 0) + begin * size_of(out.dtype);
      move_values({DType::f32, table + begin}, {out.dtype, to}, end - begin, call.accumulate);
    });
  });
}

}  // namespace dstrain::simd
