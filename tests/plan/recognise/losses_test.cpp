// What a softmax of logits has for each target becomes cross_entropy.
#include <catch2/catch.hpp>
#include <optional>
#include <vector>

#include "runtime/plan/recognise/recognise.h"
#include "tests/plan/recognise/general_forms.h"

namespace dstrain::recognised_losses {
namespace {

constexpr int64_t kBatch = 2, kTokens = 3, kClasses = 5;
const Formula kX = Formula::input(0), kY = Formula::input(1), kZ = Formula::input(2),
              kTarget = Formula::input(3);

// How a loss may be written.
struct Written {
  // The operands are the sum of exponentials, the largest logit, the target's logit and the target.
  Formula loss = select(less(kTarget, 0), 0, (logarithm(kX) + kY) - kZ);
  std::optional<Formula>
      log_shares{};  // of logits, the largest and the sum: the target's is taken of these
  Formula power = exponential(kX - kY);
  Reduction reduction = Reduction::maximum;
  int64_t columns = kClasses;  // of the logits, of which the first count
  int64_t first = 0, target_stride = 1;
  InputRole role = InputRole::labels;
  bool training = true, shifted_targets = false, read_elsewhere = false, sums_samples = false;
};

Program recognised(const Written& w) {
  Program program;
  Builder b(program, {.batch = kBatch, .training = w.training});
  b.unit("head");
  const BufferId x = b.input("x", InputRole::features, DType::f32, {kTokens, 4}),
                 weight = b.parameter("head.weight", {w.columns, 4}, Init::normal, 1);
  const BufferId logits = b.contract({x, strided({kTokens * 4, 4, 1})},
                                     {weight, strided({0, 4, 1})}, {kBatch}, kTokens, w.columns, 4);
  const BufferId targets = b.input("targets", w.role, DType::i32, {kTokens});
  const Shape space{kBatch, kTokens, kClasses}, each{kBatch, kTokens};
  const Builder::Seen rows{logits, strided({kTokens * w.columns, w.columns, 1})};
  const View dense = dense_view(each), by_row = strided({kTokens, 1, 0});
  const BufferId largest = b.detached_reduce(w.reduction, kX, space, 2, {rows}, DType::f32);
  const BufferId sum = b.reduce(Reduction::sum, w.power, space, 2, {rows, {largest, by_row}});
  BufferId table = logits;
  int64_t width = w.columns;
  if (w.log_shares) {
    table = b.map(*w.log_shares, space, {rows, {largest, by_row}, {sum, by_row}});
    width = kClasses;
  }
  View of_targets = dense;
  if (w.shifted_targets) of_targets = strided({1, 1});
  const BufferId chosen = b.take(table,
                                 {.space = each,
                                  .table = strided({kTokens * width, width}, w.first),
                                  .indices = {{of_targets, w.target_stride, kClasses - w.first}}},
                                 {targets});
  if (w.read_elsewhere) b.map(sine(kX), {kBatch * kTokens * w.columns}, {{logits, strided({1})}});
  const std::vector<Builder::Seen> operands{
      {sum, dense}, {largest, dense}, {chosen, dense}, {targets, dense}};
  b.loss(w.sums_samples ? b.reduce(Reduction::sum, w.loss, each, 1, operands, DType::f32)
                        : b.map(w.loss, each, operands, DType::f32),
         LossWeight::targets, "loss", 0.5f);
  recognise(program);
  return program;
}

TEST_CASE("cross-entropies are recognised in the ways in which they are written") {
  const Formula log = logarithm(kX), counted = less(kTarget, 0), counts = less(-1, kTarget);
  std::vector<Written> ways{{.sums_samples = true}};
  for (const Formula& loss : {log - (kZ - kY), -(kZ - (log + kY)), (kY - kZ) + log}) {
    ways.push_back({.loss = select(counted, 0, loss)});
    ways.push_back({.loss = select(counts, loss, 0)});
  }
  for (const Formula& share : {(kX - kY) - logarithm(kZ), kX - (logarithm(kZ) + kY)})
    ways.push_back({.loss = select(counted, 0, -kZ), .log_shares = share});
  for (const Written& w : ways) {
    const Program p = recognised(w);
    REQUIRE(operations(p) == "linear cross_entropy");
    const Instruction& loss = p.instructions[1];
    const BufferId logits = p.instructions[0].writes[0];
    CHECK(loss.reads == std::vector{logits, p.inputs[1].buffer});
    CHECK(loss.writes == std::vector{p.losses[0].sum, logits});
    CHECK(loss.accumulate == Accumulate::after_first_micro);
    CHECK(attrs_as<CrossEntropyAttrs>(loss.attrs) == CrossEntropyAttrs{.weight = 0.5f});
    CHECK(p.logits == logits);
  }
}

TEST_CASE("columns of padding are no classes, and a validation has no gradient") {
  const Program p = recognised({.columns = kClasses + 3, .training = false});
  REQUIRE(operations(p) == "linear cross_entropy");
  CHECK(attrs_as<CrossEntropyAttrs>(p.instructions[1].attrs).classes == kClasses);
  CHECK(p.instructions[1].writes == std::vector{p.losses[0].sum});
}

TEST_CASE("the gradient of logits that others read has a place of its own") {
  const Program p = recognised({.read_elsewhere = true});
  REQUIRE(operations(p) == "linear map cross_entropy");
  const BufferId gradient = p.instructions[2].writes[1];
  CHECK(gradient != p.instructions[0].writes[0]);
  CHECK(p.at(gradient).shape == p.at(p.instructions[0].writes[0]).shape);
}

TEST_CASE("other losses stay as they are") {
  const auto stays = [](const Written& w) {
    return operations(recognised(w)).find("cross_entropy") == std::string::npos;
  };
  const Formula log = logarithm(kX), counted = less(kTarget, 0);
  // Targets that do not count must have the loss 0, and the others theirs.
  CHECK(stays({.loss = (log + kY) - kZ}));
  CHECK(stays({.loss = select(counted, 1, (log + kY) - kZ)}));
  CHECK(stays({.loss = select(counted, (log + kY) - kZ, 0)}));
  CHECK(stays({.loss = select(less(kTarget, 1), 0, (log + kY) - kZ)}));
  CHECK(stays({.loss = select(counted, 0, (log - kY) - kZ)}));
  CHECK(stays({.loss = select(counted, 0, kZ - (log + kY))}));
  CHECK(stays({.loss = select(counted, 0, kZ), .log_shares = (kX - kY) - logarithm(kZ)}));
  CHECK(stays({.loss = select(counted, 0, -kZ), .log_shares = (kX - kY) + logarithm(kZ)}));
  // Another softmax, other elements, targets of others, and what are no labels.
  CHECK(stays({.power = exponential(2 * (kX - kY))}));
  CHECK(stays({.reduction = Reduction::minimum}));
  CHECK(stays({.first = 1}));
  CHECK(stays({.shifted_targets = true}));
  CHECK(stays({.role = InputRole::array}));
}

}  // namespace
}  // namespace dstrain::recognised_losses
