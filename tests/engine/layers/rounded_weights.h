// Weights that are rounded as they are when they travel quantized: what ranks compute with.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "launcher/implementations.h"
#include "runtime/engine/run/trainer.h"
#include "runtime/ir/quantized.h"
#include "tests/engine/stages/run_steps.h"

namespace dstrain {

// Rounds values to those that travel, by the definition.
template <class T, class Narrow>
void round_to_int8(T* x, int64_t n, const Narrow& narrow) {
  for (int64_t first = 0; first < n; first += kQuantizedBlock) {
    const int64_t end = std::min(n, first + kQuantizedBlock);
    float largest = 0;
    for (int64_t i = first; i < end; ++i) largest = std::max(largest, std::fabs(to_float(x[i])));
    float scale = largest / 127.0f;
    if (scale < std::numeric_limits<float>::min()) scale = 0;
    for (int64_t i = first; i < end; ++i)
      x[i] = narrow(scale > 0 ? std::nearbyint(to_float(x[i]) * (1.0f / scale)) * scale : 0.0f);
  }
}

inline void round_to_int8(const Tensor& slice) {
  if (slice.dtype == DType::bf16)
    round_to_int8(slice.as<bf16>(), slice.elements(), [](float x) { return to_bf16(x); });
  else
    round_to_int8(slice.as<float>(), slice.elements(), [](float x) { return x; });
}

// Runs the first step. `rounded`: of parameters that were rounded before, else of those that the job quantizes.
inline std::pair<double, float> first_step(const Job& job, const Dataset& data, Communicator& world,
                                           bool rounded) {
  RunContext context{implementations()};
  context.comm = &world;
  Trainer trainer(job, data, context, make_backend(implementations(), job.device));
  trainer.load();
  if (rounded) {
    const Program& program = trainer.plan().program;
    for (const Unit& unit : program.units)
      round_to_int8(trainer.arenas().tensor(trainer.plan(), program.find("params:" + unit.name)));
    std::vector<double> all(static_cast<size_t>(world.size()));
    world.gather_values(std::vector{0.0}, all);  // peers read the slices
  }
  trainer.step();
  return {trainer.state().loss_sum, trainer.state().grad_norm};
}

}  // namespace dstrain
