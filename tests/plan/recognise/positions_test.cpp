// Embed adds the positions that a map adds to what it looks up.
#include <catch2/catch.hpp>

#include "runtime/plan/recognise/recognise.h"
#include "tests/plan/recognise/general_forms.h"

namespace dstrain::recognised_positions {
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

}  // namespace
}  // namespace dstrain::recognised_positions
