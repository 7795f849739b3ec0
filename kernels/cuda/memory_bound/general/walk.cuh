// What the general ops compute for an index of their space: a formula of operands that are read through views. A thread
// evaluates it step by step for a few indices; what the steps compute is in its local memory.
#pragma once

#include <algorithm>
#include <span>
#include <type_traits>

#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/operands.h"
#include "runtime/ir/views/general_attrs.h"

namespace dstrain::DSTRAIN_BACKEND {

// A view as kernels read it.
struct DeviceView {
  int64_t offset;
  int64_t strides[Shape::kMaxRank], begin[Shape::kMaxRank], end[Shape::kMaxRank];
};

enum class ElementType : uint8_t { of_result, f32, i32 };

struct WalkOperand {
  const void* data;
  DeviceView view;
  ElementType type;
  bool bounded, one_by_one;  // one_by_one: element i belongs to index i
};

// A formula, its operands and its index space.
struct DeviceWalk {
  FormulaStep steps[Formula::kMostSteps];
  WalkOperand in[Formula::kMostInputs];
  int64_t sizes[Shape::kMaxRank];
  int count, rank, operands;

  void read(std::span<const Tensor> tensors) {
    for (int i = 0; i < operands; ++i) in[i].data = data(tensors, static_cast<size_t>(i));
  }
};

inline DeviceView device_view(const View& view) {
  DeviceView v{};
  v.offset = view.offset;
  std::copy(view.strides.begin(), view.strides.end(), v.strides);
  std::copy(view.begin.begin(), view.begin.end(), v.begin);
  std::copy(view.end.begin(), view.end.end(), v.end);
  return v;
}

inline DeviceWalk walk_over(const Formula& formula, const Shape& space, std::span<const View> views,
                            std::span<const TensorSpec> operands, DType result) {
  DeviceWalk walk{};
  walk.count = static_cast<int>(formula.steps().size());
  walk.rank = space.rank;
  walk.operands = static_cast<int>(operands.size());
  std::copy(formula.steps().begin(), formula.steps().end(), walk.steps);
  std::copy(space.dims.begin(), space.dims.end(), walk.sizes);
  for (size_t i = 0; i < operands.size(); ++i) {
    const DType dtype = operands[i].dtype;
    const ElementType type = dtype == DType::i32   ? ElementType::i32
                             : dtype == DType::f32 ? ElementType::f32
                                                   : ElementType::of_result;
    check(type != ElementType::of_result || dtype == result || !is_16bit(result),
          "an operand of {} for a result of {}", name_of(dtype), name_of(result));
    walk.in[i] = {nullptr, device_view(views[i]), type, views[i].bounded(space),
                  is_dense(views[i], space)};
  }
  return walk;
}

// Returns the type of the operands that are not f32: of 16 bits, where there is one.
inline DType type_of(std::span<const TensorSpec> operands, DType result) {
  for (const TensorSpec& operand : operands)
    if (is_16bit(operand.dtype)) return operand.dtype;
  return result;
}

// The functions that take many registers: called, so that the others need not keep these free.
__device__ __attribute__((noinline)) static float apply_rare(Fn fn, float a, float b) {
  switch (fn) {
    case Fn::error_function:
      return erff(a);
    case Fn::power:
      return powf(a, b);
    case Fn::remainder:
      return fmodf(a, b);
    default:
      return 0.0f;
  }
}

__device__ inline float apply(Fn fn, float a, float b, float c) {
  switch (fn) {
    case Fn::add:
      return a + b;
    case Fn::subtract:
      return a - b;
    case Fn::multiply:
      return a * b;
    case Fn::divide:
      return a / b;
    case Fn::maximum:
      return a != a ? a : b != b ? b : fmaxf(a, b);
    case Fn::minimum:
      return a != a ? a : b != b ? b : fminf(a, b);
    case Fn::less:
      return a < b ? 1.0f : 0.0f;
    case Fn::select:
      return a != 0.0f ? b : c;
    case Fn::negate:
      return -a;
    case Fn::absolute:
      return fabsf(a);
    case Fn::exponential:
      return expf(a);
    case Fn::logarithm:
      return logf(a);
    case Fn::square_root:
      return sqrtf(a);
    case Fn::tangent:
      return tanhf(a);
    case Fn::sigmoid:
      return 1.0f / (1.0f + expf(-a));
    case Fn::sine:
      return sinf(a);
    case Fn::cosine:
      return cosf(a);
    case Fn::rounded_down:
      return floorf(a);
    case Fn::rounded:
      return rintf(a);
    default:
      return apply_rare(fn, a, b);
  }
}

// Sets `element` to the one of an operand that belongs to index `at` of the space. Returns whether it has one.
__device__ inline bool find_element(const DeviceWalk& walk, const WalkOperand& operand, int64_t at,
                                    int64_t* element) {
  const DeviceView& view = operand.view;
  int64_t from = view.offset;
  bool inside = true;
#pragma unroll 1
  for (int d = walk.rank - 1; d >= 0; --d) {
    const int64_t index = d > 0 ? at % walk.sizes[d] : at;
    if (d > 0) at /= walk.sizes[d];
    from += index * view.strides[d];
    inside = inside && index >= view.begin[d] && index < view.end[d];
  }
  *element = from;
  return !operand.bounded || inside;
}

// T: the type of operands that are neither f32 nor integers.
template <class T>
__device__ inline float element_of(const WalkOperand& operand, int64_t element) {
  if (operand.type == ElementType::i32)
    return static_cast<float>(static_cast<const int32_t*>(operand.data)[element]);
  if (operand.type == ElementType::f32) return static_cast<const float*>(operand.data)[element];
  return widen(static_cast<const T*>(operand.data)[element]);
}

// Loads the operand's elements of N indices from `at` on; those outside [0, n) are 0.
template <class T, int N>
__device__ inline void load_operand(const DeviceWalk& walk, const WalkOperand& operand, int64_t at,
                                    int64_t n, float (&v)[N]) {
  if (operand.one_by_one && operand.type == ElementType::f32)
    return load(static_cast<const float*>(operand.data), at, n, v);
  if (operand.one_by_one && operand.type == ElementType::of_result)
    return load(static_cast<const T*>(operand.data), at, n, v);
#pragma unroll 1
  for (int k = 0; k < N; ++k) {
    int64_t element = 0;
    const bool inside = at + k >= 0 && at + k < n && find_element(walk, operand, at + k, &element);
    v[k] = inside ? element_of<T>(operand, element) : 0.0f;
  }
}

// The same of 1 where the operand has an element, else 0.
template <int N>
__device__ inline void load_inside(const DeviceWalk& walk, const WalkOperand& operand, int64_t at,
                                   float (&v)[N]) {
#pragma unroll 1
  for (int k = 0; k < N; ++k) {
    int64_t element = 0;
    v[k] = find_element(walk, operand, at + k, &element) ? 1.0f : 0.0f;
  }
}

// Computes the formula at N indices from `at` on; those outside [0, n) have no meaning.
template <class T, int N>
__device__ inline void walk_values(const DeviceWalk& walk, int64_t at, int64_t n,
                                   float (&values)[N]) {
  float results[Formula::kMostSteps][N];
  for (int s = 0; s < walk.count; ++s) {
    const FormulaStep step = walk.steps[s];
    float(&v)[N] = results[s];
    if (step.fn == Fn::input) {
      load_operand<T>(walk, walk.in[step.a], at, n, v);
      continue;
    }
    if (step.fn == Fn::inside) {
      load_inside(walk, walk.in[step.a], at, v);
      continue;
    }
#pragma unroll
    for (int k = 0; k < N; ++k)
      v[k] = step.fn == Fn::constant
                 ? step.value
                 : apply(step.fn, results[step.a][k], results[step.b][k], results[step.c][k]);
  }
#pragma unroll
  for (int k = 0; k < N; ++k) values[k] = results[walk.count - 1][k];
}

}  // namespace dstrain::DSTRAIN_BACKEND
