#include "models/benchmark/benchmark.h"

#include <cmath>

#include "models/measure.h"
#include "models/sizes.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain {
namespace {

void build_benchmark(Builder& b, const ModelConfig& c) {
  const int64_t layers = c.integer("n_layer"), inputs = c.integer("in_size"),
                width = c.integer("hidden_size"), classes = c.integer("out_size");
  std::string name = b.layer("layers", 0);
  BufferId x = b.input("samples", InputRole::features, DType::f32, {inputs});
  for (int64_t i = 0; i < layers; ++i) {
    if (i > 0) name = b.layer("layers", i);
    const int64_t in = i == 0 ? inputs : width;
    const int64_t out = i + 1 == layers ? classes : width;
    const float bound = 1.0f / static_cast<float>(std::sqrt(static_cast<double>(in)));
    const BufferId w = b.parameter(name + ".weight", {out, in}, Init::uniform, bound);
    const BufferId bias = b.parameter(name + ".bias", {out}, Init::uniform, bound);
    x = b.linear(x, w, bias, Activation::relu);
  }
  if (b.options().with_loss)
    b.cross_entropy(x, b.input("targets", InputRole::labels, DType::i32, {}));
  else
    b.output(x);
}

}  // namespace

const ModelFamily& benchmark() {
  using models::size_key;
  constexpr auto change = FactChange::impossible;
  static const ModelFamily family{
      .type = "benchmark",
      .title = "benchmark model",
      .keys = {{size_key("dstrain.model.n_layer", "", "linear layers; required",
                         models::kMostLayers),
                change, true},
               {size_key("dstrain.model.in_size", "", "required"), change, true},
               {size_key("dstrain.model.hidden_size", "", "required"), change, true},
               {size_key("dstrain.model.out_size", "", "required"), change, true}},
      .inputs = {{"samples", InputRole::features, DType::f32, {"in_size"}},
                 {"targets", InputRole::labels, DType::i32, {}, "out_size"}},
      .layers_key = "n_layer",
      .width_key = "hidden_size",
      .build = build_benchmark,
      .measure = measure_model};
  return family;
}

}  // namespace dstrain
