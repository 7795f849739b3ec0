// The general ops refuse index spaces that have no index: a sum of nothing has no rule.
#include "tests/ir/one_op.h"

namespace dstrain {
namespace {

using Catch::Contains;

const Formula kOperand = Formula::input(0);

TEST_CASE("maps and reductions over no index are refused") {
  OneOp t;
  const Shape none{3, 0};
  const BufferId x = t.run({4}), nothing = t.run(none), three = t.run({3});
  const std::vector<View> views{dense_view(none)};
  CHECK_THAT(t.refusal({.op = OpKind::map,
                        .attrs = MapAttrs{kOperand, none, views},
                        .reads = {x},
                        .writes = {nothing}}),
             Contains("at least one index"));
  CHECK_THAT(t.refusal({.op = OpKind::map,
                        .attrs = MapAttrs{kOperand},
                        .reads = {nothing},
                        .writes = {nothing}}),
             Contains("at least one element"));
  for (const Reduction kind : {Reduction::sum, Reduction::maximum, Reduction::minimum})
    CHECK_THAT(t.refusal({.op = OpKind::reduce,
                          .attrs = ReduceAttrs{kind, kOperand, none, 1, views},
                          .reads = {x},
                          .writes = {three}}),
               Contains("at least one index"));
}

TEST_CASE("products, tables and windows of nothing are refused") {
  OneOp t;
  const BufferId x = t.run({4}), nothing = t.run({0}), ids = t.buffer({4}, DType::i32);
  CHECK_THAT(t.refusal({.op = OpKind::contract,
                        .attrs = ContractAttrs{.batch = {0}, .m = 2, .n = 2, .k = 2},
                        .reads = {x, x},
                        .writes = {nothing}}),
             Contains("sizes of products"));
  CHECK_THAT(t.refusal({.op = OpKind::contract,
                        .attrs = ContractAttrs{.m = 2, .n = 2, .k = 0},
                        .reads = {x, x},
                        .writes = {x}}),
             Contains("sizes of products"));
  const TakeAttrs table{.space = {0}, .indices = {{.stride = 1, .size = 4}}};
  CHECK_THAT(
      t.refusal({.op = OpKind::take, .attrs = table, .reads = {x, ids}, .writes = {nothing}}),
      Contains("at least one index"));
  CHECK_THAT(t.refusal({.op = OpKind::put, .attrs = table, .reads = {nothing, ids}, .writes = {x}}),
             Contains("at least one index"));
  CHECK_THAT(t.refusal({.op = OpKind::window,
                        .attrs = WindowAttrs{.planes = 0},
                        .reads = {nothing},
                        .writes = {nothing}}),
             Contains("at least one plane"));
}

TEST_CASE("lines of nothing, parts of lines and more than a line has are refused") {
  OneOp t;
  const BufferId x = t.run({6}), y = t.run({6}), order = t.buffer({6}, DType::i32);
  const auto scan = [&](Lines lines, BufferId from, BufferId to) {
    return t.refusal(
        {.op = OpKind::scan, .attrs = ScanAttrs{lines}, .reads = {from}, .writes = {to}});
  };
  CHECK(scan({3, 2}, x, y) == "");
  CHECK_THAT(scan({0, 1}, x, y), Contains("1 to 2^31 - 1 elements"));
  CHECK_THAT(scan({int64_t{1} << 31, 1}, x, y), Contains("1 to 2^31 - 1 elements"));
  CHECK_THAT(scan({4, 1}, x, y), Contains("whole lines"));
  CHECK_THAT(scan({3, 1}, t.run({0}), t.run({0})), Contains("whole lines"));
  CHECK_THAT(scan({3, 1}, x, x), Contains("overlap"));
  CHECK_THAT(scan({3, 1}, order, y), Contains("i32"));
  CHECK(scan({3, 1}, order, t.buffer({6}, DType::i32)) == "");
  const auto sort = [&](int64_t kept, BufferId to) {
    return t.refusal({.op = OpKind::sort,
                      .attrs = SortAttrs{.lines = {3, 2}, .kept = kept},
                      .reads = {x},
                      .writes = {to}});
  };
  CHECK(sort(3, order) == "");
  CHECK(sort(1, t.buffer({2}, DType::i32)) == "");
  CHECK_THAT(sort(4, order), Contains("as many elements are kept"));
  CHECK_THAT(sort(0, order), Contains("as many elements are kept"));
  CHECK_THAT(sort(2, order), Contains("must have 4 elements"));
  CHECK_THAT(sort(3, y), Contains("i32"));
}

}  // namespace
}  // namespace dstrain
