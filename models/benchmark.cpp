// The benchmark model: n_layer linear layers with ReLU after each, the last one included, and a
// cross-entropy loss. Its samples come from a counter-based generator (runtime/data/benchmark_dataset.h).
#include <fmt/core.h>

#include <cmath>

#include "models/model.h"

namespace dstrain {

void build_benchmark(Builder& b, const ModelConfig& c) {
  b.unit("layers.0");
  BufferId x = b.samples(c.in_size);
  for (int64_t i = 0; i < c.n_layer; ++i) {
    const std::string name = fmt::format("layers.{}", i);
    if (i > 0) b.unit(name);
    const int64_t in = i == 0 ? c.in_size : c.hidden_size;
    const int64_t out = i + 1 == c.n_layer ? c.out_size : c.hidden_size;
    const float bound = 1.0f / static_cast<float>(std::sqrt(static_cast<double>(in)));
    const BufferId w = b.parameter(name + ".weight", {out, in}, Init::uniform, bound);
    const BufferId bias = b.parameter(name + ".bias", {out}, Init::uniform, bound);
    x = b.linear(x, w, bias, Activation::relu);
  }
  if (b.options().with_loss)
    b.cross_entropy(x, b.targets(b.options().batch));
  else
    b.output(x);
}

}  // namespace dstrain
