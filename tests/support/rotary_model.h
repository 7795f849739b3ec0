// A model for tests of what Llama's layers are made of: norms of rows and of heads without a mean, rotated heads, and
// gated products. Queries, keys and values share one product here, so that all three of them are normalised and rotated.
#pragma once

#include "models/measure.h"
#include "models/sizes.h"
#include "runtime/config/family/family.h"
#include "runtime/ir/builder/builder.h"

namespace dstrain {

inline void build_rotary_model(Builder& b, const ModelConfig& c) {
  constexpr float kEps = 1e-5f;
  const int64_t width = c.integer("width"), ids = c.integer("vocab_size"),
                length = c.integer("length"), heads = c.integer("heads"), hidden = 2 * width + 3;
  const auto norm = [&](BufferId x, const std::string& name, int64_t group, bool frozen) {
    const Trainable trained = frozen && c.flag("frozen") ? Trainable::no : Trainable::yes;
    return b.rms_norm(x, b.parameter(name + ".weight", {group}, Init::ones, 0, trained),
                      {.eps = kEps});
  };
  const auto linear = [&](BufferId x, const std::string& name, int64_t out, int64_t in) {
    return b.linear(x, b.parameter(name + ".weight", {out, in}, Init::normal, 0.2f), kNone,
                    Activation::none);
  };
  b.unit("embedding");
  const BufferId table = b.vocabulary("embedding.weight", {ids, width}, Init::normal, 0.5f);
  BufferId x =
      b.embed(b.input("ids", InputRole::token_ids, DType::i32, {length}), table, kNone, length);
  for (int64_t i = 0; i < c.integer("depth"); ++i) {
    const std::string name = b.layer("layers", i, "attn");
    BufferId y = norm(x, name + ".input_norm", width, i == 0);
    y = norm(linear(y, name + ".qkv", 3 * width, width), name + ".head_norm", width / heads,
             i == 1);
    const BufferId documents = b.documents(length);
    y = b.rotary(y, length,
                 {.head_size = width / heads,
                  .kind = i % 2 == 0 ? RotaryKind::plain : RotaryKind::llama3,
                  .theta = 50,
                  .factor = 2,
                  .original_positions = 8},
                 documents);
    y = linear(b.attention(y, heads, length, 0, documents), name + ".out", width, width);
    x = b.add_dropout(x, y, length, 0.1);
    b.sublayer("mlp");
    y = norm(x, name + ".mlp_norm", width, false);
    y = b.gated(linear(y, name + ".gate", hidden, width), linear(y, name + ".up", hidden, width),
                Activation::silu);
    x = b.add_dropout(x, linear(y, name + ".down", width, hidden), length, 0.1);
  }
  b.unit("head");
  x = norm(x, "norm", width, false);
  const BufferId logits = b.linear(x, b.vocabulary("head.weight", {ids, width}, Init::normal, 0.2f),
                                   kNone, Activation::none);
  if (b.options().with_loss)
    b.cross_entropy(logits, b.input("targets", InputRole::labels, DType::i32, {length}), ids);
  else
    b.output(logits);
}

inline const ModelFamily& rotary_family() {
  using models::size_key;
  static const ModelFamily family{
      .type = "rotary",
      .title = "rotary model",
      .keys = {{size_key("dstrain.model.depth", "2", "layers", models::kMostLayers)},
               {size_key("dstrain.model.width", "24", "of a row")},
               {size_key("dstrain.model.heads", "2", "of a layer")},
               {size_key("dstrain.model.length", "7", "tokens of a sample")},
               {{.key = "dstrain.model.frozen", .fallback = "false"}},
               {size_key("dstrain.model.vocab_size", "", "unset: the data's")}},
      .inputs = {{"ids", InputRole::token_ids, DType::i32, {"length"}, "vocab_size"},
                 {"documents", InputRole::documents, DType::i32, {"length"}},
                 {"targets", InputRole::labels, DType::i32, {"length"}, "vocab_size"}},
      .layers_key = "depth",
      .width_key = "width",
      .build = build_rotary_model,
      .measure = measure_model};
  return family;
}

struct RotaryModel {
  int64_t depth = 2, width = 24, heads = 2, length = 7, vocab_size = 13;
  bool frozen = false;  // the first norms of the first two layers

  operator ModelConfig() const {
    ModelConfig model(rotary_family());
    model.set("depth", depth);
    model.set("width", width);
    model.set("heads", heads);
    model.set("length", length);
    model.set("frozen", frozen);
    model.set("vocab_size", vocab_size);
    return model;
  }
};

}  // namespace dstrain
