#include "runtime/ir/builder/builder.h"

#include <fmt/core.h>

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/build_model.h"
#include "tests/support/models.h"

using namespace dstrain;

TEST_CASE("a parameter is declared once and its shape is binding") {
  Program program;
  Builder b(program, {});
  b.unit("u");
  const BufferId w = b.parameter("w", {3, 4}, Init::normal, 0.02f);
  CHECK(b.parameter("w", {3, 4}, Init::normal, 0.02f) == w);
  CHECK(program.parameters.size() == 1);
  CHECK_THROWS_WITH(b.parameter("w", {4, 3}, Init::normal),
                    Catch::Contains("declared as (3, 4) and used as (4, 3)"));
}

TEST_CASE("a layer has the number that the model gives it, whatever its name ends in") {
  Program program;
  Builder b(program, {});
  b.unit("stem.1");
  CHECK(b.layer("blocks", 0, "attn") == "blocks.0");
  b.sublayer("mlp");
  CHECK(b.layer("blocks", 1) == "blocks.1");
  b.unit("head");
  std::vector<std::string> names;
  std::vector<int64_t> numbers, layers;
  for (const Layer& layer : program.layers) {
    names.push_back(layer.name);
    numbers.push_back(layer.number);
  }
  for (const Sublayer& sublayer : program.sublayers) layers.push_back(sublayer.layer);
  CHECK(names == std::vector<std::string>{"stem.1", "blocks.0", "blocks.1", "head"});
  CHECK(numbers == std::vector<int64_t>{-1, 0, 1, -1});
  CHECK(layers == std::vector<int64_t>{0, 1, 1, 2, 3});
}

TEST_CASE("a parameter is frozen or not") {
  Program program;
  Builder b(program, {.batch = 2});
  b.unit("u");
  b.parameter("w", {4}, Init::ones, 0, Trainable::no);
  b.parameter("b", {4}, Init::zeros);
  CHECK(program.parameters[0].frozen);
  CHECK_FALSE(program.parameters[1].frozen);
  CHECK_THROWS_WITH(b.parameter("w", {4}, Init::ones),
                    Catch::Contains("parameter w is declared both as frozen and as trained"));
}

TEST_CASE("a registered buffer is f32 and is updated once, in training, where it is declared") {
  Program program;
  Builder b(program, {.dtype = DType::bf16, .batch = 2});
  b.unit("u", "first");
  const BufferId buffer = b.registered_buffer("mean", {4}, Init::ones),
                 x = b.input("samples", InputRole::features, DType::f32, {4});
  CHECK(program.at(buffer).dtype == DType::f32);
  CHECK(program.at(b.cast(buffer)).dtype == DType::bf16);
  CHECK(program.parameters.empty());
  const BufferId sums = b.column_sums(x);
  CHECK(program.at(sums).dtype == DType::f32);
  b.update_buffer(buffer, sums, {.keep = 0.5f, .share = 2});
  CHECK(program.registered[0].keep == 0.5f);
  CHECK(program.registered[0].sum != kNone);
  CHECK_THROWS_WITH(b.update_buffer(buffer, sums, {}), Catch::Contains("updated once"));
  const BufferId other = b.registered_buffer("other", {4}, Init::zeros);
  b.sublayer("second");
  CHECK_THROWS_WITH(b.update_buffer(other, sums, {}), Catch::Contains("that declares it"));
  CHECK_THROWS_WITH(b.update_buffer(x, sums, {}), Catch::Contains("no registered buffer"));
  CHECK_THROWS_WITH(b.registered_buffer("mean", {4}, Init::ones), Catch::Contains("the name"));
  CHECK_THROWS_WITH(b.parameter("mean", {4}, Init::ones), Catch::Contains("the name of a buffer"));
  CHECK_THROWS_WITH(b.registered_buffer("n", {4}, Init::normal), Catch::Contains("zeros or ones"));

  Program validation;
  Builder v(validation, {.batch = 2, .training = false});
  v.unit("u");
  const BufferId kept = v.registered_buffer("mean", {4}, Init::ones);
  v.update_buffer(kept, v.column_sums(v.input("samples", InputRole::features, DType::f32, {4})),
                  {});
  CHECK(validation.registered[0].sum == kNone);
}

TEST_CASE("losses have names and weights, and what one has overwritten is not read again") {
  Program program;
  Builder b(program, {.batch = 2});
  b.unit("u");
  const BufferId x = b.input("samples", InputRole::features, DType::f32, {4}),
                 targets = b.input("targets", InputRole::labels, DType::i32, {});
  const auto logits = [&](const std::string& name) {
    return b.linear(x, b.parameter(name, {3, 4}, Init::normal), kNone, Activation::none);
  };
  const BufferId first = logits("first");
  b.cross_entropy(first, targets, 0, "early", 0.5f);
  CHECK(program.weighs_losses());
  CHECK_THROWS_WITH(b.activation(first, Activation::relu), Catch::Contains("has overwritten"));
  CHECK_THROWS_WITH(b.cross_entropy(logits("w"), targets, 0, "early"),
                    Catch::Contains("two losses have the name early"));
  b.cross_entropy(logits("last"), targets);
  REQUIRE(program.losses.size() == 2);
  CHECK(program.losses[0].weight == 0.5f);
  CHECK(program.at(program.losses[0].sum).name == "loss:early");
  CHECK(program.last_loss() == program.find("loss"));
  for (int i = 0; i < 4; ++i)
    b.cross_entropy(logits(fmt::format("w{}", i)), targets, 0, fmt::format("{}", i));
  CHECK_THROWS_WITH(b.cross_entropy(logits("seventh"), targets, 0, "seventh"),
                    Catch::Contains("at most 6 losses"));
}

TEST_CASE("results are named after weights, whose names need no dot") {
  Program program;
  Builder b(program, {.batch = 2});
  b.unit("u");
  const BufferId x = b.input("samples", InputRole::features, DType::f32, {4});
  const auto name_with = [&](const std::string& weight) {
    return program
        .at(b.linear(x, b.parameter(weight, {3, 4}, Init::normal), kNone, Activation::none))
        .name;
  };
  CHECK(name_with("blocks.0.fc.weight") == "u.fc");
  CHECK(name_with("fc.weight") == "u.fc2");
  CHECK(name_with("table") == "u.table");
}

TEST_CASE("a vocabulary is padded in memory alone") {
  for (const bool tied : {false, true}) {
    Program program;
    Builder b(program, {.batch = 2, .row_multiple = 8});
    build_model(b, GptLite{.n_layer = 1,
                           .n_embd = 6,
                           .n_head = 2,
                           .block_size = 4,
                           .tied_head = tied,
                           .vocab_size = 13});
    for (const char* name : {"token_embedding_table.weight", "lm_head.weight"})
      for (const Parameter& p : program.parameters) {
        if (p.name != name) continue;
        CHECK(p.shape == Shape{13, 6});
        CHECK(program.at(p.value).shape == Shape{16, 6});
      }
    CHECK(program.at(program.logits).shape == Shape{8, 16});
    const OpAttrs& attrs = program.instructions.back().attrs;
    CHECK(std::get<CrossEntropyAttrs>(attrs).classes == 13);
  }
  Program program;
  Builder b(program, {.row_multiple = 8});
  b.unit("u");
  const BufferId w = b.vocabulary("w", {13, 4}, Init::normal);
  CHECK(b.vocabulary("w", {13, 4}, Init::normal) == w);
  CHECK(program.at(b.vocabulary("x", {16, 4}, Init::normal)).shape == Shape{16, 4});
  CHECK(program.at(b.parameter("y", {13, 4}, Init::normal)).shape == Shape{13, 4});
}

TEST_CASE("shapes are checked when an op is emitted, and the message shows the operands") {
  Program program;
  Builder b(program, {.batch = 2});
  b.unit("u");
  const BufferId x = b.embed(b.input("ids", InputRole::token_ids, DType::i32, {5}),
                             b.parameter("t.weight", {7, 6}, Init::normal),
                             b.parameter("p.weight", {5, 6}, Init::normal), 5);
  CHECK(program.at(x).shape == Shape{10, 6});
  const BufferId wrong = b.parameter("w.weight", {4, 5}, Init::normal);
  CHECK_THROWS_WITH(b.linear(x, wrong, kNone, Activation::none), Catch::Contains("linear") &&
                                                                     Catch::Contains("(10, 6)") &&
                                                                     Catch::Contains("(4, 5)"));
}

TEST_CASE("GPT-2 options are options of the same model") {
  for (const bool on : {false, true}) {
    Program program;
    Builder b(program, {.batch = 1});
    build_model(b, GptLite{.n_layer = 1,
                           .n_embd = 8,
                           .n_head = 2,
                           .block_size = 4,
                           .gelu = on,
                           .qkv_bias = on,
                           .tied_head = on,
                           .vocab_size = 5});
    const auto has = [&](std::string_view name) {
      for (const Parameter& p : program.parameters)
        if (p.name == name) return true;
      return false;
    };
    CHECK(has("blocks.0.attn.qkv.bias") == on);
    CHECK(has("lm_head.weight") == !on);
    size_t activations = 0;
    for (const Instruction& op : program.instructions) activations += op.op == OpKind::activation;
    CHECK(activations == (on ? 1u : 0u));  // relu is the product's epilogue
  }
}

TEST_CASE("dropout is off outside training and its sites keep their numbers") {
  for (const bool training : {true, false}) {
    Program program;
    Builder b(program, {.batch = 1, .training = training});
    build_model(b, GptLite{.n_layer = 2,
                           .n_embd = 8,
                           .n_head = 2,
                           .block_size = 4,
                           .dropout = 0.25,
                           .vocab_size = 5});
    std::vector<uint32_t> sites;
    for (const Instruction& op : program.instructions) {
      const float expected = training ? 0.25f : 0.0f;
      if (const auto* attention = std::get_if<AttentionAttrs>(&op.attrs)) {
        sites.push_back(attention->site);
        CHECK(attention->dropout == expected);
      } else if (const auto* dropout = std::get_if<DropoutAttrs>(&op.attrs)) {
        sites.push_back(dropout->site);
        CHECK(dropout->dropout == expected);
      }
    }
    CHECK(sites == std::vector<uint32_t>{0, 1, 2, 3, 4, 5});
  }
}

TEST_CASE(
    "attention of separate queries, keys and values has its heads, window and scale, and a dropout "
    "site") {
  for (const bool training : {true, false}) {
    Program program;
    Builder b(program, {.dtype = DType::bf16, .batch = 3, .training = training});
    b.unit("u");
    const auto rows = [&](const std::string& name, int64_t columns) {
      return b.parameter(name, {3 * 7, columns}, Init::normal);
    };
    const BufferId y = b.attention(
        rows("q", 20), rows("k", 10), rows("v", 10),
        {.heads = 4, .kv_heads = 2, .seq_len = 7, .dropout = 0.25, .window = 3, .scale = 0.5});
    CHECK(program.at(y).shape == Shape{3 * 7, 20});
    CHECK(program.at(y).dtype == DType::bf16);
    const Instruction& op = program.instructions.back();
    CHECK(program.at(op.writes[1]).shape == Shape{3, 4, 7});
    const AttentionAttrs expected{.dropout = training ? 0.25f : 0.0f,
                                  .site = 0,
                                  .heads = 4,
                                  .seq_len = 7,
                                  .kv_heads = 2,
                                  .window = 3,
                                  .scale = 0.5};
    CHECK(op.attrs == OpAttrs(expected));
    b.attention(rows("qkv", 60), 4, 7, 0.25);
    const auto packed = attrs_as<AttentionAttrs>(program.instructions.back().attrs);
    CHECK((packed.site == 1 && packed.causal));
    b.attention(rows("x", 20), rows("y", 20), rows("z", 20),
                {.heads = 4, .kv_heads = 4, .seq_len = 7, .causal = false});
    CHECK_FALSE(attrs_as<AttentionAttrs>(program.instructions.back().attrs).causal);
  }
}

TEST_CASE("a product's cost is 2 M N K") {
  Program program;
  Builder b(program, {.batch = 3});
  b.unit("u");
  const BufferId x = b.input("samples", InputRole::features, DType::f32, {4});
  b.linear(x, b.parameter("w.weight", {5, 4}, Init::normal), kNone, Activation::none);
  CHECK(cost_of(program, program.instructions.back()).flops == 2.0 * 3 * 4 * 5);
}

TEST_CASE("inputs are declared by name and role, and a batch has one tensor of each") {
  Program program;
  Builder b(program, {.batch = 3});
  b.unit("u");
  const BufferId notes = b.input("notes", InputRole::features, DType::f32, {5, 4});
  const BufferId labels = b.input("labels", InputRole::labels, DType::i32, {});
  CHECK(program.at(notes).name == "notes");
  CHECK(program.at(notes).shape == Shape{3, 5, 4});
  CHECK(program.at(labels).shape == Shape{3});
  CHECK(program.at(labels).per_micro);
  REQUIRE(program.inputs.size() == 2);
  CHECK(program.inputs[0].sample == Shape{5, 4});
  CHECK(program.input(InputRole::features) == notes);
  CHECK(program.input(InputRole::labels) == labels);
  CHECK(program.input(InputRole::token_ids) == kNone);
  CHECK(b.input("notes", InputRole::features, DType::f32, {5, 4}) == notes);
  CHECK(program.inputs.size() == 2);
  using Catch::Contains;
  CHECK_THROWS_WITH(b.input("notes", InputRole::features, DType::f32, {4, 5}),
                    Contains("declared as features (5, 4) and used as features (4, 5)"));
  CHECK_THROWS_WITH(b.input("others", InputRole::features, DType::f32, {4}),
                    Contains("input others is the second one of features"));
  const BufferId first = b.input("first", InputRole::array, DType::f32, {3, 4}),
                 second = b.input("second", InputRole::array, DType::i32, {});
  CHECK(first != second);
  CHECK(program.input(InputRole::array) == first);
  CHECK(program.at(second).shape == Shape{3});
  CHECK_THROWS_WITH(b.input("third", InputRole::array, DType::bf16, {4}),
                    Contains("third is declared as bf16: arrays are f32 or i32"));
  CHECK_THROWS_WITH(b.input("ids", InputRole::token_ids, DType::u8, {4}),
                    Contains("input ids is declared as u8: token ids are i32"));
  CHECK_THROWS_WITH(b.input("ids", InputRole::token_ids, DType::i32, {2, 2, 2, 2, 2, 2, 2, 2}),
                    Contains("is added to the shape (3, 2, 2, 2, 2, 2, 2, 2)"));
}

TEST_CASE("each layer of a 16-bit run that reads features rounds them for itself") {
  Program program;
  Builder b(program, {.dtype = DType::bf16, .batch = 2});
  b.unit("one");
  const BufferId first = b.input("notes", InputRole::features, DType::f32, {4});
  b.unit("two");
  const BufferId second = b.input("notes", InputRole::features, DType::f32, {4});
  CHECK(first != second);
  CHECK(program.inputs.size() == 1);
  REQUIRE(program.instructions.size() == 2);
  for (const Instruction& op : program.instructions) {
    CHECK(op.op == OpKind::cast);
    CHECK(op.reads[0] == program.inputs[0].buffer);
    CHECK(program.at(op.writes[0]).dtype == DType::bf16);
  }
  CHECK(program.instructions[1].sublayer == 1);
}

TEST_CASE("a layer reads the rows of an input of any rank") {
  Program program;
  Builder b(program, {.batch = 2});
  b.unit("u");
  const BufferId x = b.input("notes", InputRole::features, DType::f32, {3, 5, 4});
  const BufferId y =
      b.linear(x, b.parameter("w.weight", {7, 4}, Init::normal), kNone, Activation::none);
  CHECK(program.at(y).shape == Shape{30, 7});
  const BufferId ones = b.parameter("n.weight", {4}, Init::ones);
  const BufferId norm = b.layer_norm(x, ones, b.parameter("n.bias", {4}, Init::zeros), 1e-5f);
  CHECK(program.at(norm).shape == Shape{2, 3, 5, 4});
  CHECK(program.at(program.instructions.back().writes[1]).shape == Shape{30});
}

TEST_CASE("builder: documents are an input where the options have them, one for all layers") {
  for (const bool has : {false, true}) {
    Program program;
    Builder b(program, {.batch = 2, .documents = has});
    b.unit("u");
    const BufferId ids = b.input("ids", InputRole::token_ids, DType::i32, {5});
    const BufferId first = b.documents(5);
    const BufferId token = b.parameter("token.weight", {7, 6}, Init::normal),
                   position = b.parameter("position.weight", {5, 6}, Init::normal);
    BufferId x = b.embed(ids, token, position, 5, first);
    b.unit("v");
    CHECK(b.documents(5) == first);
    x = b.linear(x, b.parameter("w.weight", {18, 6}, Init::normal), kNone, Activation::none);
    b.attention(b.rotary(x, 5, {.head_size = 6}, b.documents(5)), 3, 5, 0, b.documents(5));
    CHECK(program.input(InputRole::documents) == first);
    CHECK(program.inputs.size() == (has ? 2 : 1));
    size_t readers = 0;
    for (const Instruction& op : program.instructions)
      readers += has && op.reads.back() == first ? 1 : 0;
    CHECK(readers == (has ? 3 : 0));
    // Without positions there is nothing to count.
    b.embed(ids, token, kNone, 5, first);
    CHECK(program.instructions.back().reads.size() == 3);
    if (has) CHECK(program.at(first).shape == Shape{2, 5});
  }
}

TEST_CASE("a map has so many operands that the maps of its gradients can read one more") {
  Program program;
  Builder b(program, {.batch = 2});
  b.unit("u");
  const BufferId x = b.input("x", InputRole::features, DType::f32, {3, 4});
  CHECK_NOTHROW(b.map(Formula::input(0), std::vector<BufferId>(6, x)));
  CHECK_THROWS_WITH(b.map(Formula::input(0), std::vector<BufferId>(7, x)),
                    Catch::Contains("expected 1 to 6"));
}
