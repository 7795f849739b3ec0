// A model for tests of the general ops, of which it consists: rows of a table by take, attention without a mask by
// contractions, a softmax by reductions and maps, tokens that see the one before them by a view that is padded, sums over
// tokens of one id by put, and two losses that are means over samples.
#pragma once

#include "models/measure.h"
#include "models/sizes.h"
#include "runtime/config/family/family.h"
#include "runtime/ir/builder/builder.h"
#include "runtime/ir/formula/losses.h"
#include "tests/support/general_layers.h"

namespace dstrain {

class GeneralModelBuilder {
 public:
  GeneralModelBuilder(Builder& b, const ModelConfig& c)
      : b_(b),
        layers_(b, c.integer("length")),
        samples_(layers_.samples()),
        tokens_(layers_.tokens()),
        width_(c.integer("width")),
        heads_(2),
        ids_(c.integer("vocab_size")),
        notes_(c.integer("notes")),
        depth_(c.integer("depth")) {}

  void build() {
    b_.unit("embedding");
    BufferId x = rows_of_ids("embedding.weight");
    for (int64_t i = 0; i < depth_; ++i) {
      const std::string name = b_.layer("layers", i);
      x = attention(norm(x), x, name);
      x = sums_of_ids(x, name);
    }
    b_.unit("head");
    const BufferId said = product(norm(x), "head.weight", notes_, width_);
    if (b_.options().with_loss)
      losses(said);
    else
      b_.output(said);
  }

 private:
  using Seen = Builder::Seen;
  static inline const Formula kX = Formula::input(0), kY = Formula::input(1),
                              kZ = Formula::input(2);

  Shape rows(int64_t columns) const { return layers_.rows(columns); }
  Seen whole(BufferId id) const { return layers_.whole(id); }
  static Seen seen(BufferId id, View::Numbers strides) { return GeneralLayers::seen(id, strides); }
  BufferId ids() { return b_.input("ids", InputRole::token_ids, DType::i32, {tokens_}); }

  BufferId rows_of_ids(const std::string& name) {
    const BufferId table = b_.parameter(name, {ids_, width_}, Init::normal, 0.5f);
    return b_.take(table, layers_.by_id(width_, ids_), {ids()});
  }

  BufferId product(BufferId x, const std::string& name, int64_t out, int64_t in) {
    return layers_.product(x, b_.parameter(name, {out, in}, Init::normal, 0.3f));
  }

  BufferId norm(BufferId x) { return layers_.centred_norm(x, width_, 1e-5f); }

  BufferId attention(BufferId normed, BufferId x, const std::string& name) {
    const int64_t size = width_ / heads_;
    const BufferId q = product(normed, name + ".q", width_, width_),
                   k = product(normed, name + ".k", width_, width_),
                   v = product(normed, name + ".v", width_, width_);
    const View::Numbers by_head{tokens_ * width_, size, width_, 1};
    const BufferId scores =
        b_.contract(seen(q, by_head), seen(k, by_head), {samples_, heads_}, tokens_, tokens_, size);
    const Shape space{samples_, heads_, tokens_, tokens_};
    const View by_row{.strides = {heads_ * tokens_, tokens_, 1, 0}};
    const BufferId largest = b_.reduce(Reduction::maximum, kX, space, 3, {whole(scores)});
    const BufferId weights =
        b_.map(exponential((kX - kY) * 0.5f), space, {whole(scores), {largest, by_row}});
    const BufferId sum = b_.reduce(Reduction::sum, kX, space, 3, {whole(weights)}, DType::f32);
    const BufferId shares = b_.map(kX / kY, space, {whole(weights), {sum, by_row}});
    const BufferId heads = b_.contract(whole(shares), seen(v, {tokens_ * width_, size, 1, width_}),
                                       {samples_, heads_}, tokens_, size, tokens_);
    // Heads side by side again, and half of the token before.
    const Shape by_token{samples_, tokens_, heads_, size};
    View before{.offset = -width_, .strides = {tokens_ * width_, width_, size, 1}};
    before.begin[1] = 1;
    return b_.map(kX + kY + 0.5f * kZ, by_token,
                  {{heads, {.strides = {tokens_ * width_, size, tokens_ * size, 1}}},
                   {x, dense_view(by_token)},
                   {x, before}});
  }

  // Adds to each token a gate times the sum over the tokens of its id in the sample.
  BufferId sums_of_ids(BufferId x, const std::string& name) {
    TakeAttrs of_sample = layers_.by_id(width_, ids_);
    of_sample.table.strides = {ids_ * width_, 0, 1};
    const BufferId sums = b_.put(x, of_sample, {ids()}, {samples_, ids_, width_});
    const BufferId mine = b_.take(sums, of_sample, {ids()});
    const BufferId gate = b_.parameter(name + ".gate", {width_}, Init::normal, 0.2f);
    return b_.map(kX + tangent(kY) * kZ, rows(width_),
                  {{x, dense_view(rows(width_))}, seen(gate, {0, 0, 1}), whole(mine)});
  }

  void losses(BufferId said) {
    const BufferId right = b_.input("notes", InputRole::features, DType::f32, {tokens_, notes_});
    const Shape space = rows(notes_);
    const float part = 1 / static_cast<float>(tokens_ * notes_);
    const BufferId ranked =
        b_.reduce(Reduction::sum, part * binary_cross_entropy_of_logit(kX, 0.5f + 0.5f * kY), space,
                  1, {whole(said), whole(right)}, DType::f32);
    b_.loss(ranked, LossWeight::samples, "likely", 0.3f);
    const BufferId squares = b_.reduce(Reduction::sum, part * squared_error(kX, kY), space, 0,
                                       {whole(said), whole(right)}, DType::f32);
    b_.loss(squares, LossWeight::samples);
  }

  Builder& b_;
  GeneralLayers layers_;
  int64_t samples_, tokens_, width_, heads_, ids_, notes_, depth_;
};

inline const ModelFamily& general_family() {
  using models::size_key;
  static const ModelFamily family{
      .type = "general",
      .title = "general model",
      .keys = {{size_key("dstrain.model.depth", "3", "layers", models::kMostLayers)},
               {size_key("dstrain.model.width", "10", "of a layer")},
               {size_key("dstrain.model.length", "5", "tokens of a sample")},
               {size_key("dstrain.model.notes", "3", "features of a token")},
               {size_key("dstrain.model.vocab_size", "", "unset: the data's")}},
      .inputs = {{"ids", InputRole::token_ids, DType::i32, {"length"}, "vocab_size"},
                 {"notes", InputRole::features, DType::f32, {"length", "notes"}}},
      .layers_key = "depth",
      .width_key = "width",
      .build = [](Builder& b, const ModelConfig& c) { GeneralModelBuilder(b, c).build(); },
      .measure = measure_model};
  return family;
}

inline ModelConfig general_model() {
  ModelConfig model(general_family());
  model.set("vocab_size", int64_t{7});
  return model;
}

}  // namespace dstrain
