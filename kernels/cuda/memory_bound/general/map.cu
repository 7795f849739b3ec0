// map: a formula at each index of a space. Minimum memory traffic: the operands once, and the result.
#include "kernels/cuda/memory_bound/general/walk.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kElements = 4;  // of a thread

// SASS: stack 1056
template <class T, class To>
struct MapOf {
  DeviceWalk walk;
  To* y;
  bool accumulate;

  __device__ void operator()(int64_t at, int64_t n) const {
    float v[kElements];
    walk_values<T>(walk, at, n, v);
    if constexpr (std::is_same_v<To, int32_t>) {
      for (int k = 0; k < kElements; ++k)
        if (at + k >= 0 && at + k < n) y[at + k] = static_cast<int32_t>(v[k]);
      return;
    } else {
      write(v, at, n);
    }
  }

  __device__ void write(float (&v)[kElements], int64_t at, int64_t n) const {
    if (accumulate) {
      float before[kElements];
      load(static_cast<const To*>(y), at, n, before);
#pragma unroll
      for (int k = 0; k < kElements; ++k) v[k] = before[k] + v[k];
    }
    store(v, y, at, n);
  }
};

}  // namespace

std::unique_ptr<Kernel> make_map(const KernelSpec& spec, const LaunchContext& context) {
  const auto attrs = attrs_as<MapAttrs>(spec.attrs);
  std::vector<Shape> shapes;
  for (const TensorSpec& in : spec.in) shapes.push_back(in.shape);
  MapWalk of = walk_of(spec.out[0].shape, shapes, attrs);
  collapse(of.space, of.views);
  const DType to = spec.out[0].dtype;
  const DType from = type_of(spec.in, to == DType::i32 ? DType::f32 : to);
  const DeviceWalk walk = walk_over(attrs.formula, of.space, of.views, spec.in, to);
  return kernel_of([context, walk, from, to, n = elements(spec.out[0])](const KernelCall& call) {
    with_type(from, [&](auto of_values) {
      const auto run = [&](auto of_result) {
        using To = decltype(of_result);
        MapOf<decltype(of_values), To> f{walk, data<To>(call.out, 0), call.accumulate};
        f.walk.read(call.in);
        launch_flat<kElements>(context, "map", static_cast<const To*>(f.y), n, f);
      };
      if (to == DType::i32)
        run(int32_t{});
      else if (to == DType::f32)
        run(float{});
      else
        run(of_values);
    });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
