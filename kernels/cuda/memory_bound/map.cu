// map: a formula of each element. A thread evaluates it step by step for a pack of elements; what the steps compute is in
// its local memory. Minimum memory traffic: the operands once, and the result.
#include <type_traits>

#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "runtime/ir/formula/broadcast.h"
#include "runtime/ir/formula/formula.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kElements = 4;  // of a thread

struct MapOperand {
  const void* data;
  Broadcast way;
  bool f32;
};

// A formula and its operands; rows of the result have `columns` columns.
struct MapSteps {
  FormulaStep steps[Formula::kMostSteps];
  MapOperand in[Formula::kMostInputs];
  int count, inputs;
  int64_t columns;
};

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
    default:
      return 0.0f;
  }
}

template <class T>
struct MapOf {
  MapSteps map;
  T* y;

  template <class From>
  __device__ void load_operand(const MapOperand& operand, int64_t at, int64_t n,
                               float (&v)[kElements]) const {
    const From* from = static_cast<const From*>(operand.data);
    if (operand.way == Broadcast::none) return load(from, at, n, v);
#pragma unroll
    for (int k = 0; k < kElements; ++k) {
      const int64_t i = at + k;
      const bool inside = i >= 0 && i < n;
      const int64_t index = operand.way == Broadcast::columns ? i % map.columns
                            : operand.way == Broadcast::rows  ? i / map.columns
                                                              : 0;
      v[k] = inside ? widen(from[index]) : 0.0f;
    }
  }

  // An operand has f32 or the type of the result.
  __device__ void load_any(const MapOperand& operand, int64_t at, int64_t n,
                           float (&v)[kElements]) const {
    if constexpr (!std::is_same_v<T, float>) {
      if (!operand.f32) return load_operand<T>(operand, at, n, v);
    }
    load_operand<float>(operand, at, n, v);
  }

  __device__ void operator()(int64_t at, int64_t n) const {
    float results[Formula::kMostSteps][kElements];
    for (int s = 0; s < map.count; ++s) {
      const FormulaStep step = map.steps[s];
      float(&v)[kElements] = results[s];
      if (step.fn == Fn::input) {
        const MapOperand& operand = map.in[step.a];
        load_any(operand, at, n, v);
        continue;
      }
#pragma unroll
      for (int k = 0; k < kElements; ++k)
        v[k] = step.fn == Fn::constant
                   ? step.value
                   : apply(step.fn, results[step.a][k], results[step.b][k], results[step.c][k]);
    }
    store(results[map.count - 1], y, at, n);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_map(const KernelSpec& spec, const LaunchContext& context) {
  const Formula formula = attrs_as<MapAttrs>(spec.attrs).formula;
  MapSteps map{};
  map.count = static_cast<int>(formula.steps().size());
  map.inputs = static_cast<int>(spec.in.size());
  map.columns = columns(spec.out[0]);
  std::copy(formula.steps().begin(), formula.steps().end(), map.steps);
  for (size_t i = 0; i < spec.in.size(); ++i)
    map.in[i] = {nullptr, broadcast_of(spec.out[0].shape, spec.in[i].shape),
                 spec.in[i].dtype == DType::f32};
  return kernel_of(
      [context, map, n = elements(spec.out[0]), dtype = spec.out[0].dtype](const KernelCall& call) {
        with_type(dtype, [&](auto t) {
          using T = decltype(t);
          MapOf<T> f{map, data<T>(call.out, 0)};
          for (int i = 0; i < map.inputs; ++i)
            f.map.in[i].data = data(call.in, static_cast<size_t>(i));
          launch_flat<kElements>(context, "map", static_cast<const T*>(f.y), n, f);
        });
      });
}

}  // namespace dstrain::DSTRAIN_BACKEND
