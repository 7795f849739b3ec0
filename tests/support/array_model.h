// A model for tests of data in arrays: it tells from 3 by 4 features of a sample which of five classes it has, by general
// ops. Its inputs are the arrays x, f32, and y, i32.
#pragma once

#include "models/measure.h"
#include "models/sizes.h"
#include "runtime/config/family/family.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain {

inline constexpr int64_t kArrayClasses = 5;

class ArrayModelBuilder {
 public:
  ArrayModelBuilder(Builder& b, const ModelConfig& c)
      : b_(b),
        samples_(b.options().batch),
        width_(c.integer("width")),
        depth_(c.integer("depth")) {}

  void build() {
    BufferId x = kNone;
    int64_t columns = 3 * 4;
    for (int64_t i = 0; i < depth_; ++i) {
      const std::string name = b_.layer("layers", i);
      if (i == 0) x = b_.input("x", InputRole::array, DType::f32, {3, 4});
      const BufferId sum = product(x, name + ".weight", width_, columns);
      x = b_.map(tangent(kX), {samples_, width_}, {whole(sum)});
      columns = width_;
    }
    b_.unit("head");
    const BufferId logits = product(x, "head.weight", kArrayClasses, columns);
    const BufferId y = b_.input("y", InputRole::array, DType::i32, {});
    if (b_.options().with_loss)
      loss(logits, y);
    else
      b_.output(logits);
  }

 private:
  using Seen = Builder::Seen;
  static inline const Formula kX = Formula::input(0), kY = Formula::input(1),
                              kZ = Formula::input(2);

  Seen whole(BufferId id) const { return {id, dense_view(b_.program().at(id).shape)}; }

  BufferId product(BufferId x, const std::string& name, int64_t out, int64_t in) {
    const BufferId weight = b_.parameter(name, {out, in}, Init::normal, 0.3f);
    return b_.contract({x, {.strides = {in, 1}}}, {weight, {.strides = {in, 1}}}, {}, samples_, out,
                       in);
  }

  // log(sum of exp) - logit of the class, of each sample.
  void loss(BufferId logits, BufferId y) {
    const Shape space{samples_, kArrayClasses};
    const View by_row{.strides = {1, 0}};
    const BufferId largest =
        b_.reduce(Reduction::maximum, kX, space, 1, {whole(logits)}, DType::f32);
    const BufferId sum = b_.reduce(Reduction::sum, exponential(kX - kY), space, 1,
                                   {whole(logits), {largest, by_row}}, DType::f32);
    const BufferId right = b_.take(logits,
                                   {.space = {samples_},
                                    .table = {.strides = {kArrayClasses}},
                                    .indices = {{{.strides = {1}}, 1, kArrayClasses}}},
                                   {y});
    const BufferId losses =
        b_.map(logarithm(kX) + kY - kZ, {samples_}, {whole(sum), whole(largest), whole(right)});
    b_.loss(losses, LossWeight::samples);
  }

  Builder& b_;
  int64_t samples_, width_, depth_;
};

inline const ModelFamily& array_family() {
  using models::size_key;
  static const ModelFamily family{
      .type = "arrays",
      .title = "array model",
      .keys = {{size_key("dstrain.model.depth", "2", "layers", models::kMostLayers)},
               {size_key("dstrain.model.width", "8", "of a layer")}},
      .inputs = {{"x", InputRole::array, DType::f32, {}, {}, {3, 4}, {7, 3, 4}},
                 {"y", InputRole::array, DType::i32, {}, {}, {}}},
      .layers_key = "depth",
      .width_key = "width",
      .build = [](Builder& b, const ModelConfig& c) { ArrayModelBuilder(b, c).build(); },
      .measure = measure_model};
  return family;
}

}  // namespace dstrain
