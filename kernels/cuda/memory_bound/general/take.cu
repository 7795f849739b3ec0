// take and put: elements that operands of indices name. put adds in the order of the indices: a thread has an index of each
// dimension whose indices never meet, and walks through the others. Minimum memory traffic: the indices, what is taken or put, and
// as much of the table.
#include <limits>

#include "kernels/cuda/memory_bound/general/walk.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/take_walk.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kMostIndices = 4;

struct DeviceTake {
  int64_t sizes[Shape::kMaxRank];
  DeviceView table, view[kMostIndices];
  const int32_t* indices[kMostIndices];
  int64_t stride[kMostIndices], size[kMostIndices];
  int rank, count;

  __device__ static int64_t element_of(const DeviceView& of, const int64_t* index, int rank) {
    int64_t element = of.offset;
    for (int d = 0; d < rank; ++d) element += index[d] * of.strides[d];
    return element;
  }

  // Returns the element of the table that belongs to an index of the space; -1: there is none.
  __device__ int64_t element(const int64_t* index) const {
    int64_t found = element_of(table, index, rank);
    for (int i = 0; i < count; ++i) {
      int64_t named = indices[i][element_of(view[i], index, rank)];
      if (named < 0) named += size[i];
      if (named < 0 || named >= size[i]) return -1;
      found += named * stride[i];
    }
    return found;
  }

  // The same of index `at` in order.
  __device__ int64_t element(int64_t at) const {
    int64_t index[Shape::kMaxRank];
    for (int d = rank - 1; d >= 0; --d) {
      index[d] = d > 0 ? at % sizes[d] : at;
      if (d > 0) at /= sizes[d];
    }
    return element(index);
  }

  void read(std::span<const Tensor> operands) {
    for (int i = 0; i < count; ++i)
      indices[i] = data<const int32_t>(operands, static_cast<size_t>(i) + 1);
  }
};

DeviceTake take_of(const TakeWalk& walk) {
  DeviceTake take{};
  take.rank = walk.space.rank;
  take.count = static_cast<int>(walk.indices.size());
  std::copy(walk.space.dims.begin(), walk.space.dims.end(), take.sizes);
  take.table = device_view(walk.views[0]);
  for (size_t i = 0; i < walk.indices.size(); ++i) {
    take.view[i] = device_view(walk.views[i + 1]);
    take.stride[i] = walk.indices[i].stride;
    take.size[i] = walk.indices[i].size;
  }
  return take;
}

// SASS: stack 64
template <class T, class To>
struct TakeElements {
  DeviceTake take;
  const T* table;
  To* y;
  bool accumulate;

  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    const int64_t element = take.element(at);
    const float value = element < 0 ? __int_as_float(0x7fc00000) : widen(table[element]);
    y[at] = narrow<To>(accumulate ? widen(y[at]) + value : value);
  }
};

// SASS: stack 64
struct TakeIntegers {
  DeviceTake take;
  const int32_t* table;
  int32_t* y;

  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    const int64_t element = take.element(at);
    y[at] = element < 0 ? static_cast<int32_t>(0x80000000u) : table[element];
  }
};

// Which dimensions of a put its threads divide among them, and how many indices that makes, and the others.
struct Division {
  bool apart[Shape::kMaxRank];
  int64_t threads, each;
};

// SASS: stack 64
template <class T>
struct PutElements {
  DeviceTake take;
  Division division;
  const T* values;
  float* table;

  // Sets the dimensions that are apart, or the others, to index `at` of these. Returns how far on in the values that is.
  __device__ int64_t set(int64_t* index, bool apart, int64_t at) const {
    int64_t further = 0, stride = 1;
    for (int d = take.rank - 1; d >= 0; --d) {
      if (division.apart[d] == apart) {
        index[d] = at % take.sizes[d];
        at /= take.sizes[d];
        further += index[d] * stride;
      }
      stride *= take.sizes[d];
    }
    return further;
  }

  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    int64_t index[Shape::kMaxRank];
    const int64_t first = set(index, true, at);
    for (int64_t k = 0; k < division.each; ++k) {
      const int64_t i = first + set(index, false, k), element = take.element(index);
      if (element >= 0) table[element] += widen(values[i]);
    }
  }
};

Division division_of(const TakeWalk& walk) {
  Division division{.apart = {}, .threads = 1, .each = 1};
  for (int d = 0; d < walk.space.rank; ++d) {
    division.apart[d] = walk.is_apart(d);
    (division.apart[d] ? division.threads : division.each) *= walk.space[d];
  }
  return division;
}

struct Clear {
  float* table;
  __device__ void operator()(int64_t at, int64_t n) const {
    if (at >= 0 && at < n) table[at] = 0;
  }
};

template <class T>
struct RoundTable {
  const float* table;
  T* x;
  bool accumulate;
  __device__ void operator()(int64_t at, int64_t n) const {
    if (at < 0 || at >= n) return;
    x[at] = narrow<T>(accumulate ? widen(x[at]) + table[at] : table[at]);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_take(const KernelSpec& spec, const LaunchContext& context) {
  const DeviceTake take = take_of(TakeWalk(attrs_as<TakeAttrs>(spec.attrs)));
  return kernel_of([context, take, n = elements(spec.out[0]), from = spec.in[0].dtype,
                    to = spec.out[0].dtype](const KernelCall& call) {
    if (from == DType::i32) {
      auto* const y = data<int32_t>(call.out, 0);
      TakeIntegers f{take, data<const int32_t>(call.in, 0), y};
      f.take.read(call.in);
      return launch_flat<1>(context, "take (integers)", static_cast<const int32_t*>(y), n, f);
    }
    with_type(from, [&](auto of_table) {
      with_type(to, [&](auto of_result) {
        using T = decltype(of_table);
        using To = decltype(of_result);
        To* const y = data<To>(call.out, 0);
        TakeElements<T, To> f{take, data<const T>(call.in, 0), y, call.accumulate};
        f.take.read(call.in);
        launch_flat<1>(context, "take", static_cast<const To*>(y), n, f);
      });
    });
  });
}

int64_t put_workspace(const KernelSpec& spec) {
  if (spec.out[0].dtype == DType::f32) return 0;
  return elements(spec.out[0]) * static_cast<int64_t>(sizeof(float));
}

std::unique_ptr<Kernel> make_put(const KernelSpec& spec, const LaunchContext& context) {
  const TakeWalk walk(attrs_as<TakeAttrs>(spec.attrs));
  return kernel_of([context, take = take_of(walk), division = division_of(walk),
                    from = spec.in[0].dtype, out = spec.out[0]](const KernelCall& call) {
    const int64_t n = elements(out);
    const bool exact = out.dtype == DType::f32;
    float* const table = exact ? data<float>(call.out, 0) : workspace<float>(call, n);
    if (!exact || !call.accumulate)
      launch_flat<1>(context, "put (clear)", static_cast<const float*>(table), n, Clear{table});
    with_type(from, [&](auto type) {
      using T = decltype(type);
      PutElements<T> f{take, division, data<const T>(call.in, 0), table};
      f.take.read(call.in);
      launch_flat<1>(context, "put", static_cast<const float*>(nullptr), division.threads, f);
    });
    if (exact) return;
    with_type(out.dtype, [&](auto type) {
      using T = decltype(type);
      T* const x = data<T>(call.out, 0);
      launch_flat<1>(context, "put (round)", static_cast<const T*>(x), n,
                     RoundTable<T>{table, x, call.accumulate});
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
