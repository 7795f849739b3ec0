// A model for tests that has what models may have: token ids and features as inputs, an embedding that is frozen, hidden
// layers of which every third one is frozen and every third one has a frozen weight and a bias that is trained, a
// registered buffer in place of the bias of the others, a loss beside the first, and a head behind formulas of elements.
#pragma once

#include "models/measure.h"
#include "models/sizes.h"
#include "runtime/config/family/family.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain {

inline void build_mixed(Builder& b, const ModelConfig& c) {
  const int64_t width = c.integer("width"), ids = c.integer("vocab_size"),
                length = c.integer("length");
  const auto unless = [&c](bool frozen) {
    return c.flag("frozen") && frozen ? Trainable::no : Trainable::yes;
  };
  const bool with_loss = b.options().with_loss, buffers = c.flag("buffers");
  b.unit("embedding");
  const BufferId table =
      b.vocabulary("embedding.weight", {ids, width}, Init::normal, 0.5f, unless(true));
  const BufferId tokens = b.input("ids", InputRole::token_ids, DType::i32, {length});
  const BufferId notes =
      b.input("notes", InputRole::features, DType::f32, {length, c.integer("notes")});
  const BufferId said = b.linear(
      notes,
      b.parameter("embedding.notes", {width, c.integer("notes")}, Init::normal, 0.5f, unless(true)),
      kNone, Activation::none);
  BufferId x = b.add_dropout(b.embed(tokens, table, kNone, length), said, length, 0);
  const BufferId targets =
      with_loss ? b.input("targets", InputRole::labels, DType::i32, {length}) : kNone;
  for (int64_t i = 0; i < c.integer("depth"); ++i) {
    const std::string name = b.layer("hidden", i);
    const Trainable weight = unless(i % 3 != 1), bias = unless(i % 3 == 2);
    const BufferId w = b.parameter(name + ".weight", {width, width}, Init::normal, 0.5f, weight);
    if (i % 3 == 1 && buffers) {  // minus the running mean of what comes in
      const BufferId mean = b.registered_buffer(name + ".mean", {width}, Init::ones);
      if (b.options().training)
        b.update_buffer(mean, b.column_sums(x),
                        {.keep = 0.75f, .share = -0.05f, .per_sample = true});
      x = b.linear(x, w, b.cast(mean), Activation::relu);
    } else {
      x = b.linear(x, w, b.parameter(name + ".bias", {width}, Init::zeros, 0, bias),
                   Activation::relu);
    }
    if (i == 1 && with_loss && c.flag("two_losses")) {
      const BufferId early = b.vocabulary("early.weight", {ids, width}, Init::normal, 0.02f);
      b.cross_entropy(b.linear(x, early, kNone, Activation::none), targets, ids, "early", 0.3f);
    }
  }
  b.unit("head");
  const Formula value = Formula::input(0), slope = Formula::input(1);
  x = b.map(value + 0.25f * tangent(value * slope),
            {x, b.parameter("head.slope", {width}, Init::ones)});
  x = b.map(value * 0.9f, {x});  // for which there is an op
  const BufferId scale = b.parameter("head.norm.weight", {width}, Init::ones, 0, unless(true));
  const BufferId shift = b.parameter("head.norm.bias", {width}, Init::zeros, 0, unless(true));
  const BufferId head = b.vocabulary("head.weight", {ids, width}, Init::normal, 0.02f);
  const BufferId logits =
      b.linear(b.layer_norm(x, scale, shift, 1e-5f), head, kNone, Activation::none);
  if (with_loss)
    b.cross_entropy(logits, targets, ids);
  else
    b.output(logits);
}

inline const ModelFamily& mixed() {
  using models::size_key;
  static const ModelFamily family{
      .type = "mixed",
      .title = "mixed model",
      .keys = {{size_key("dstrain.model.depth", "4", "hidden layers", models::kMostLayers)},
               {size_key("dstrain.model.width", "10", "of a hidden layer")},
               {size_key("dstrain.model.length", "5", "tokens of a sample")},
               {size_key("dstrain.model.notes", "3", "features beside a token")},
               {{.key = "dstrain.model.frozen", .fallback = "true"}},
               {{.key = "dstrain.model.buffers", .fallback = "true"}},
               {{.key = "dstrain.model.two_losses", .fallback = "true"}},
               {size_key("dstrain.model.vocab_size", "", "unset: the data's")}},
      .inputs = {{"ids", InputRole::token_ids, DType::i32, {"length"}, "vocab_size"},
                 {"notes", InputRole::features, DType::f32, {"length", "notes"}},
                 {"targets", InputRole::labels, DType::i32, {"length"}, "vocab_size"}},
      .layers_key = "depth",
      .width_key = "width",
      .build = build_mixed,
      .measure = measure_model};
  return family;
}

// Returns the family with another forward pass, over tokens alone.
inline ModelFamily mixed_over_tokens(std::string_view type,
                                     void (*build)(Builder&, const ModelConfig&)) {
  ModelFamily family = mixed();
  family.type = type;
  family.build = build;
  std::erase_if(family.inputs, [](const ModelInput& i) { return i.role == InputRole::features; });
  return family;
}

struct MixedModel {
  int64_t depth = 4, width = 10, length = 5, vocab_size = 11;
  bool frozen = true, buffers = true, two_losses = true;

  operator ModelConfig() const {
    ModelConfig model(mixed());
    model.set("depth", depth);
    model.set("width", width);
    model.set("length", length);
    model.set("frozen", frozen);
    model.set("buffers", buffers);
    model.set("two_losses", two_losses);
    model.set("vocab_size", vocab_size);
    return model;
  }
};

}  // namespace dstrain
