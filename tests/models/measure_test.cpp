#include "models/measure.h"

#include <catch2/catch.hpp>

#include "runtime/plan/build_model.h"
#include "tests/support/models.h"

using namespace dstrain;

namespace {

// What is counted in the whole program, with every layer of it.
struct Counted {
  double parameters = 0, matrix_elements = 0, activations = 0;
  int64_t layers = 0;
};

Counted count(const ModelConfig& model) {
  Program program;
  Builder builder(program, {.training = false});
  build_model(builder, model);
  Counted c;
  c.layers = static_cast<int64_t>(program.units.size());
  for (const Parameter& p : program.parameters) {
    const auto n = static_cast<double>(p.shape.elements());
    c.parameters += n;
    if (p.shape.rank == 2) c.matrix_elements += n;
  }
  for (const Buffer& b : program.buffers)
    if (b.parameter < 0) c.activations += static_cast<double>(b.shape.elements());
  return c;
}

}  // namespace

TEST_CASE("measures are those of the whole program, however many layers it has") {
  for (const int64_t layers : {1, 2, 3, 4, 9})
    for (const ModelConfig& model :
         {ModelConfig(GptLite{
              .n_layer = layers, .n_embd = 6, .n_head = 2, .block_size = 5, .vocab_size = 11}),
          ModelConfig(GptLite{.n_layer = layers,
          .n_embd = 6,
          .n_head = 3,
          .block_size = 5,
          .gelu = true,
          .qkv_bias = true,
          .tied_head = true,
          .vocab_size = 11}),
          ModelConfig(
              BenchmarkModel{.n_layer = layers, .in_size = 3, .hidden_size = 7, .out_size = 5})}) {
      CAPTURE(model.family().type, layers);
      const Counted whole = count(model);
      const ModelMeasures m = model.measures();
      CHECK(m.layers == whole.layers);
      CHECK(m.parameters == whole.parameters);
      CHECK(m.matrix_elements == whole.matrix_elements);
      CHECK(m.activations == whole.activations);
    }
}

TEST_CASE("a model says what its loss and its token table are") {
  GptLite gpt{.n_layer = 2, .n_embd = 6, .n_head = 2, .block_size = 5, .vocab_size = 11};
  const ModelMeasures m = ModelConfig(gpt).measures();
  CHECK(m.named_layers == std::vector<std::string>{"embedding", "head"});
  CHECK(m.rows == 5);
  CHECK(m.logits == 5 * 11);
  CHECK(m.divides_loss);
  REQUIRE(m.token_table);
  CHECK(m.token_table->name == "token_embedding_table.weight");
  CHECK(m.token_table->rows == 11);
  CHECK(m.token_table->width == 6);
  CHECK_FALSE(m.token_table->shared);
  gpt.tied_head = true;
  CHECK(ModelConfig(gpt).measures().token_table->shared);

  const ModelMeasures dnn = ModelConfig(BenchmarkModel{.n_layer = 2, .out_size = 4}).measures();
  CHECK(dnn.named_layers.empty());
  CHECK(dnn.rows == 1);
  CHECK(dnn.logits == 4);
  CHECK_FALSE(dnn.divides_loss);  // relu's slope follows from the logits
  CHECK_FALSE(dnn.token_table);
}

TEST_CASE(
    "sizes whose products exceed 63 bits, and those that do not fit each other, are measured") {
  constexpr int64_t most = 2147483647;
  const ModelMeasures m =
      ModelConfig(
          GptLite{
              .n_layer = 2048, .n_embd = most, .n_head = 7, .block_size = most, .vocab_size = most})
          .measures();
  const double c = most;
  CHECK(m.matrix_elements == Approx((2048 * 12.0 + 3) * c * c));
  CHECK(m.activations > 2048 * 13 * c * c);
}

TEST_CASE("a vocabulary that is not known counts as one token") {
  const ModelMeasures m = ModelConfig(GptLite{.n_layer = 1, .n_embd = 6, .n_head = 2}).measures();
  CHECK(m.token_table->rows == 1);
}

TEST_CASE("adapters, frozen weights and those in blocks are measured, at any size") {
  constexpr int64_t most = 2147483647;
  const auto with = [](GptLite sizes, FineTuning tuning) {
    ModelConfig model = sizes;
    model.set_fine_tuning(std::move(tuning));
    return model.measures();
  };
  const GptLite small{.n_layer = 5, .n_embd = 6, .n_head = 2, .block_size = 5, .vocab_size = 11};
  const FineTuning nf4{.groups = {},
                       .lora = LoraConfig{.r = 3, .all_linear = true, .base = BlockFormat::nf4}};
  const ModelMeasures plain = with(small, {}), packed = with(small, nf4);
  CHECK(plain.frozen == 0);
  CHECK(packed.packed == 5 * 12 * 6 * 6);
  CHECK(packed.blocks == BlockFormat::nf4);
  CHECK(packed.frozen == plain.parameters);
  // A (3, inputs) and B (outputs, 3) of four products of 6 to 18, 6, 24 and 24 to 6 columns.
  CHECK(packed.parameters - packed.frozen == 5 * 3 * (6 + 18 + 6 + 6 + 6 + 24 + 24 + 6));
  // Patterns may freeze some layers.
  const ModelMeasures one =
      with(small, {.groups = {{.match = {"blocks.3.*"}, .trainable = false}}});
  CHECK(one.frozen > 0);
  CHECK(one.frozen ==
        with(small, {.groups = {{.match = {"blocks.*"}, .trainable = false}}}).frozen / 5);
  const ModelMeasures large = with(
      {.n_layer = 2048, .n_embd = most, .n_head = 7, .block_size = most, .vocab_size = most}, nf4);
  CHECK(large.packed == Approx(2048 * 12.0 * most * most));
}
