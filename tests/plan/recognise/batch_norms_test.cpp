// A relu of a batch norm's result, or of its sum with a residual, is the norm's own.
#include <catch2/catch.hpp>

#include "runtime/plan/recognise/recognise.h"
#include "tests/plan/recognise/general_forms.h"

namespace dstrain::recognised_batch_norms {
namespace {

constexpr int64_t kColumns = 6;
const Shape kRows{6, kColumns};
const Formula kY = Formula::input(0), kResidual = Formula::input(1);

struct Written {
  Formula act = relu(kY + kResidual);
  bool adds = true;
  bool residual_is_later = false;  // than the norm
  bool read_elsewhere = false;     // the norm's result
  bool other_layer = false;        // of the relu
  View of_residual = dense_view(kRows);
};

Program recognised(const Written& w) {
  GeneralForms p({3, kColumns});
  Builder& b = p.builder;
  const BufferId weight = b.parameter("norm.weight", {kColumns}, Init::ones),
                 bias = b.parameter("norm.bias", {kColumns}, Init::zeros);
  const auto residual = [&] { return b.map(tangent(kY), kRows, {{p.x, dense_view(kRows)}}); };
  BufferId added = w.adds && !w.residual_is_later ? residual() : kNone;
  const BufferId rows = b.map(exponential(kY), kRows, {{p.x, dense_view(kRows)}});
  const Builder::BatchNormed normed = b.batch_norm(rows, weight, bias, 0.5f);
  b.map(kY * 2, {kColumns}, {{normed.mean, dense_view({kColumns})}});
  if (w.adds && w.residual_is_later) added = residual();
  if (w.other_layer) b.unit("other");
  std::vector<Builder::Seen> operands{{normed.y, dense_view(kRows)}};
  if (w.adds) operands.push_back({added, w.of_residual});
  b.map(w.act, kRows, operands);
  if (w.read_elsewhere) b.map(exponential(kY), kRows, {{normed.y, dense_view(kRows)}});
  recognise(p.program);
  return p.program;
}

const Instruction& norm_of(const Program& program) {
  return *std::ranges::find(program.instructions, OpKind::batch_norm, &Instruction::op);
}

TEST_CASE("a relu of a batch norm, with or without a residual, becomes the norm's") {
  for (const bool later : {false, true}) {
    const Program sum = recognised({.residual_is_later = later});
    CHECK(operations(sum) == "map map batch_norm scale");
    CHECK(attrs_as<BatchNormAttrs>(norm_of(sum).attrs) == BatchNormAttrs{0.5f, true});
    CHECK(norm_of(sum).reads.size() == 4);
  }
  const Program alone = recognised({.act = relu(kY), .adds = false});
  CHECK(operations(alone) == "map batch_norm scale");
  CHECK(attrs_as<BatchNormAttrs>(norm_of(alone).attrs).relu);
  CHECK(norm_of(alone).reads.size() == 3);
}

TEST_CASE("what is not a relu of the norm's result alone stays as it is") {
  View backwards = dense_view(kRows);
  backwards.strides[0] = 0;
  for (const Written& w : {Written{.act = kY + kResidual}, Written{.read_elsewhere = true},
                           Written{.other_layer = true}, Written{.of_residual = backwards}}) {
    const Program program = recognised(w);
    CHECK(norm_of(program).reads.size() == 3);
    CHECK_FALSE(attrs_as<BatchNormAttrs>(norm_of(program).attrs).relu);
  }
}

}  // namespace
}  // namespace dstrain::recognised_batch_norms
