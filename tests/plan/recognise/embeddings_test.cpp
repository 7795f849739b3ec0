// Rows of a table that tokens name become embed, which adds the positions that a map adds.
#include <catch2/catch.hpp>

#include "runtime/plan/recognise/recognise.h"
#include "tests/plan/recognise/general_forms.h"

namespace dstrain::recognised_embeddings {
namespace {

constexpr int64_t kBatch = 2, kTokens = 5, kColumns = 4;

// Returns a program that adds what a view reads of a table of positions to embedded tokens.
Program added(const View& positions, bool read_elsewhere = false) {
  GeneralForms p({kTokens}, kBatch);
  const BufferId ids = p.builder.input("ids", InputRole::token_ids, DType::i32, {kTokens});
  const BufferId words = p.builder.parameter("words", {10, kColumns}, Init::normal, 1);
  const BufferId places = p.builder.parameter("places", {8, kColumns}, Init::normal, 1);
  const BufferId x = p.builder.embed(ids, words, kNone, kTokens);
  const Shape space{kBatch, kTokens, kColumns};
  p.builder.map(Formula::input(0) + Formula::input(1), space,
                {{x, dense_view(space)}, {places, positions}});
  if (read_elsewhere) p.builder.activation(x, Activation::relu);
  recognise(p.program);
  return p.program;
}

TEST_CASE("positions from the first row of a table on are added by embed") {
  const Program p = added(strided({0, kColumns, 1}));
  CHECK(operations(p) == "embed");
  CHECK(p.instructions.back().reads[2] == p.parameters[1].value);
  CHECK(attrs_as<EmbedAttrs>(p.instructions.back().attrs).seq_len == kTokens);
  CHECK(operations(added(strided({0, kColumns, 1}), true)) == "embed embed activation");
}

TEST_CASE("other rows of a table are added by the map") {
  CHECK(operations(added(strided({0, kColumns, 1}, kColumns))) == "embed map");
  CHECK(operations(added(strided({kColumns, 0, 1}))) == "embed map");
  CHECK(operations(added(strided({0, 0, 1}))) == "embed map");
}

// How rows of a table may be taken.
struct Taken {
  View table = strided({0, 0, 1}), ids = strided({kTokens, 1, 0});
  int64_t stride = kColumns, size = 10;
  InputRole role = InputRole::token_ids;
  bool table_is_given = false;
};

Program taken(const Taken& t) {
  GeneralForms p({kTokens}, kBatch);
  const BufferId ids = p.builder.input("ids", t.role, DType::i32, {kTokens});
  const BufferId words =
      t.table_is_given ? p.builder.input("words", InputRole::array, DType::f32, {10, kColumns})
                       : p.builder.parameter("words", {10, kColumns}, Init::normal, 1);
  const Shape space{kBatch, kTokens, kColumns};
  p.builder.take(words, {space, t.table, {{t.ids, t.stride, t.size}}}, {ids});
  recognise(p.program);
  return p.program;
}

TEST_CASE("rows that tokens name are embedded") {
  const Program p = taken({});
  REQUIRE(operations(p) == "embed");
  const Instruction& embed = p.instructions[0];
  CHECK(embed.reads == std::vector{p.inputs[1].buffer, p.parameters[0].value, BufferId{kNone}});
  CHECK(attrs_as<EmbedAttrs>(embed.attrs).seq_len == kTokens);
  CHECK(p.at(embed.writes[0]).shape == Shape{kBatch * kTokens, kColumns});
}

TEST_CASE("other elements of a table are taken") {
  const auto stays = [](const Taken& t) { return operations(taken(t)) == "take"; };
  CHECK(stays({.table = strided({0, 0, 1}, kColumns), .size = 9}));
  CHECK(stays({.table = strided({0, 0, 10}), .stride = 1}));  // columns of a table
  CHECK(stays({.ids = strided({1, kBatch, 0})}));
  CHECK(stays({.ids = strided({0, 1, 0})}));
  CHECK(stays({.role = InputRole::labels}));  // which may be negative
  CHECK(stays({.table_is_given = true}));
}

}  // namespace
}  // namespace dstrain::recognised_embeddings
