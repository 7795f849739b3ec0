#include "tests/models/own_model.h"

#include "models/measure.h"
#include "models/registry.h"
#include "models/sizes.h"
#include "runtime/ir/builder/builder.h"
#include "tests/support/mixed_model.h"

namespace dstrain {
namespace {

void build_bigram(Builder& b, const ModelConfig& c) {
  const int64_t width = c.integer("width"), ids = c.integer("vocab_size"),
                length = b.seq_len(c.integer("length")), notes = c.integer("notes");
  const auto weight = [&b](const std::string& name, Shape shape) {
    return b.parameter(name + ".weight", shape, Init::normal, 0.02f);
  };
  b.unit("embedding");
  const BufferId table = b.vocabulary("embedding.weight", {ids, width}, Init::normal, 0.02f);
  const BufferId tokens = b.input("ids", InputRole::token_ids, DType::i32, {length});
  BufferId x = b.embed(tokens, table, kNone, length);
  for (int64_t i = 0; i < c.integer("depth"); ++i) {
    const std::string name = b.layer("hidden", i);
    const BufferId bias = b.parameter(name + ".bias", {width}, Init::zeros);
    x = b.linear(x, weight(name, {width, width}), bias, Activation::relu);
  }
  b.unit("notes");
  const BufferId beside = b.input("notes", InputRole::features, DType::f32, {length, notes});
  const BufferId said = b.linear(beside, weight("notes", {width, notes}), kNone, Activation::none);
  x = b.add_dropout(x, said, length, 0);
  b.unit("head");
  const BufferId head = b.vocabulary("head.weight", {ids, width}, Init::normal, 0.02f);
  const BufferId logits = b.linear(x, head, kNone, Activation::none);
  b.cross_entropy(logits, b.input("targets", InputRole::labels, DType::i32, {length}), ids);
}

}  // namespace

const ModelFamily& bigram_with_notes() {
  using models::size_key;
  static const ModelFamily family{
      .type = "bigram",
      .title = "bigram with notes",
      .keys = {{size_key("dstrain.model.depth", "1", "hidden layers", models::kMostLayers)},
               {size_key("dstrain.model.width", "64", "of a hidden layer")},
               {size_key("dstrain.model.length", "32", "the most tokens of a sample")},
               {size_key("dstrain.model.notes", "4", "features of a token")},
               {size_key("dstrain.model.vocab_size", "", "unset: the data's")}},
      .inputs = {{"ids", InputRole::token_ids, DType::i32, {"length"}, "vocab_size"},
                 {"notes", InputRole::features, DType::f32, {"length", "notes"}},
                 {"targets", InputRole::labels, DType::i32, {"length"}, "vocab_size"}},
      .layers_key = "depth",
      .width_key = "width",
      .build = build_bigram,
      .measure = measure_model};
  return family;
}

const ModelRegistry& own_models() {
  static const ModelRegistry models(
      {model_registry().families().front(), &bigram_with_notes(), &mixed()});
  return models;
}

}  // namespace dstrain
