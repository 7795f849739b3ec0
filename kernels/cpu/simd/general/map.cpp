// map: a formula at each index of a space. Minimum memory traffic: the operands once, and the result; a step costs a load and
// a store of a tile beside its arithmetic.
#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/simd/general/map.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/simd/general/walk-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_MAP_ONCE
#define DSTRAIN_SIMD_MAP_ONCE
namespace dstrain::simd {
namespace {

struct MapRun {
  Walk walk{};
  DType dtype{};
  void* out = nullptr;
  bool accumulate = false;
};

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Computes elements [begin, end) of the result.
void map_range(const MapRun& m, int64_t begin, int64_t end) {
  Tiles tiles(m.walk);
  for (; begin < end; begin += kTile) {
    const int64_t n = std::min(kTile, end - begin);
    write_values(tiles.values(begin, n), n, m.accumulate, m.dtype, m.out, begin);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {

std::unique_ptr<Kernel> make_map(const KernelSpec& spec) {
  const auto attrs = attrs_as<MapAttrs>(spec.attrs);
  std::vector<Shape> shapes;
  for (const TensorSpec& in : spec.in) shapes.push_back(in.shape);
  MapWalk of = walk_of(spec.out[0].shape, shapes, attrs);
  collapse(of.space, of.views);
  const MapRun run{.walk = walk_over(attrs.formula, of.space, of.views, spec.in),
                   .dtype = spec.out[0].dtype};
  return kernel_of(
      [run, threads = spec.threads, n = elements(spec.out[0])](const KernelCall& call) {
        MapRun here = run;
        here.out = data(call.out, 0);
        here.accumulate = call.accumulate;
        here.walk.read(call.in);
        parallel_ranges(threads, n, kFlatGrain, [&](int64_t begin, int64_t end) {
          DSTRAIN_BEST(map_range)(here, begin, end);
        });
      });
}

}  // namespace dstrain::simd
#endif
