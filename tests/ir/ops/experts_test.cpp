#include "runtime/ir/builder/builder.h"
#include "tests/ir/one_op.h"

using namespace dstrain;
using Catch::Contains;

namespace {

using A = OperandAxis;

Along along(const OneOp& t, const Instruction& op, A axis) {
  return axes_of(t.program, op).along(axis);
}

}  // namespace

TEST_CASE("route: a row chooses each expert once") {
  OneOp t(DType::bf16);
  const Instruction op{.op = OpKind::route,
                       .attrs = RouteAttrs{},
                       .reads = {t.run({10, 6}), kNone},
                       .writes = {t.buffer({10, 2}), t.buffer({10, 2}, DType::i32)}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(
      t.refusal(with_write(with_write(op, 0, t.buffer({10, 7})), 1, t.buffer({10, 7}, DType::i32))),
      Contains("each expert once"));
  CHECK_THAT(t.refusal(with_write(op, 0, t.run({10, 2}))), Contains("20 elements of f32"));
  CHECK_THAT(t.refusal(with_write(op, 1, t.buffer({10, 2}))), Contains("20 elements of i32"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({6}))), Contains("each expert by itself"));
  const RouteAttrs grouped{.scores = RouterScores::sigmoid, .groups = 3, .kept_groups = 1};
  CHECK(t.refusal(with_attrs(with_read(op, 1, t.buffer({6})), grouped)) == "");
  RouteAttrs four = grouped;
  four.groups = 4;
  CHECK_THAT(t.refusal(with_attrs(op, four)), Contains("divide into at most 64 groups"));
  CHECK_THAT(t.refusal(with_attrs(op, RouteAttrs{.groups = 2})), Contains("each expert by itself"));
  CHECK(along(t, op, A::row) == Along::mapped);
  CHECK(along(t, op, A::expert) == Along::whole);
}

TEST_CASE("route: its weights have a gradient, and its choices none") {
  OneOp t;
  const Instruction op{.op = OpKind::route,
                       .attrs = RouteAttrs{.normalised = true},
                       .reads = {t.parameter({10, 6}), kNone},
                       .writes = {t.buffer({10, 2}), t.buffer({10, 2}, DType::i32)}};
  CHECK(t.backward_ops(op) == std::vector<std::string>{"route_grad"});
  CHECK(t.program.instructions[0].attrs == op.attrs);
}

TEST_CASE("rows of experts have places, and are moved and added with no regard to the experts") {
  OneOp t(DType::bf16);
  const BufferId chosen = t.buffer({10, 2}, DType::i32), places = t.buffer({10, 2}, DType::i32);
  const Instruction group{
      .op = OpKind::group_rows, .reads = {chosen}, .writes = {places, t.buffer({6}, DType::i32)}};
  CHECK(t.refusal(group) == "");
  CHECK_THAT(t.refusal(with_write(group, 1, t.buffer({6}))), Contains("elements of i32"));
  CHECK(along(t, group, A::row) == Along::whole);

  const BufferId x = t.run({10, 4}), of_experts = t.run({20, 4}), weights = t.buffer({10, 2});
  const Instruction spread{.op = OpKind::spread_rows, .reads = {x, places}, .writes = {of_experts}};
  CHECK(t.refusal(spread) == "");
  CHECK_THAT(t.refusal(with_write(spread, 0, t.run({10, 4}))), Contains("80 elements of bf16"));
  CHECK_THAT(t.refusal(with_write(spread, 0, t.run({40, 2}))), Contains("other columns"));
  const Instruction combine{
      .op = OpKind::combine_rows, .reads = {of_experts, places, weights}, .writes = {x}};
  CHECK(t.refusal(combine) == "");
  CHECK_THAT(t.refusal(with_read(combine, 2, t.run({10, 2}))), Contains("20 elements of f32"));
  CHECK(along(t, combine, A::routed) == Along::whole);
  CHECK(along(t, combine, A::channel) == Along::mapped);
}

TEST_CASE("spreading and combining rows are each other's gradients") {
  OneOp t;
  const BufferId places = t.buffer({10, 2}, DType::i32);
  CHECK(t.backward_ops({.op = OpKind::spread_rows,
                        .reads = {t.parameter({10, 4}), places},
                        .writes = {t.run({20, 4})}}) == std::vector<std::string>{"combine_rows"});
  CHECK(t.backward_ops({.op = OpKind::combine_rows,
                        .reads = {t.parameter({20, 4}), places, t.parameter({10, 2})},
                        .writes = {t.run({10, 4})}}) ==
        std::vector<std::string>{"combine_weight_grad", "spread_rows"});
}

TEST_CASE("grouped_linear: each row meets the weight of its expert, however many rows that has") {
  OneOp t(DType::bf16);
  const BufferId x = t.run({20, 4}), ends = t.buffer({6}, DType::i32), y = t.run({20, 3});
  const Instruction op{
      .op = OpKind::grouped_linear, .reads = {x, t.run({18, 4}), ends}, .writes = {y}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_read(op, 1, t.run({17, 4}))), Contains("72 elements of bf16"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.run({9, 8}))), Contains("other columns"));
  CHECK_THAT(t.refusal(with_read(op, 1, t.buffer({18, 4}))), Contains("72 elements of bf16"));
  CHECK(cost_of(t.program, op).flops == 2 * 20 * 4 * 3);
  CHECK_FALSE(is_product(axes_of(t.program, op)));
  CHECK(along(t, op, A::routed) == Along::mapped);
  CHECK(along(t, op, A::feature) == Along::mapped);
  CHECK(along(t, op, A::channel) == Along::contracted);
  const Instruction weights{
      .op = OpKind::grouped_weight_grad, .reads = {y, x, ends}, .writes = {t.buffer({18, 4})}};
  CHECK(t.refusal(weights) == "");
  CHECK(cost_of(t.program, weights).flops == 2 * 20 * 4 * 3);
  CHECK(along(t, weights, A::routed) == Along::contracted);
}

TEST_CASE("grouped_linear has the gradients of what is trained alone") {
  OneOp t;
  const BufferId ends = t.buffer({6}, DType::i32);
  const Instruction both{.op = OpKind::grouped_linear,
                         .reads = {t.parameter({20, 4}), t.parameter({18, 4}), ends},
                         .writes = {t.run({20, 3})}};
  CHECK(t.backward_ops(both) ==
        std::vector<std::string>{"grouped_input_grad", "grouped_weight_grad"});
  t.program.parameters.back().frozen = true;
  CHECK(t.backward_ops(both) == std::vector<std::string>{"grouped_input_grad"});
}

TEST_CASE("grouped_linear: rows of several ranks are groups of the same experts") {
  OneOp t;
  const BufferId x = t.parameter({40, 4}), w = t.parameter({9, 4}),
                 ends = t.buffer({6}, DType::i32), y = t.run({40, 3});
  const Instruction op{.op = OpKind::grouped_linear,
                       .attrs = GroupedAttrs{.senders = 2},
                       .reads = {x, w, ends},
                       .writes = {y}};
  CHECK(t.refusal(op) == "");
  CHECK_THAT(t.refusal(with_attrs(op, GroupedAttrs{.senders = 4})), Contains("the same experts"));
  // As many FLOPs as one rank's rows take: the room is for those of all.
  CHECK(cost_of(t.program, op).flops == 2 * 20 * 4 * 3);
  CHECK(t.backward_ops(op) ==
        std::vector<std::string>{"grouped_input_grad", "grouped_weight_grad"});
  const Parameter& weight = t.program.parameters[1];
  CHECK(weight.gradient_terms == 2);
  CHECK(t.program.at(weight.gradient).shape == Shape{18, 4});
}

TEST_CASE("expert_ends and exchange_rows: there is room for the rows of all ranks") {
  OneOp t(DType::bf16);
  const BufferId ends = t.buffer({6}, DType::i32), counts = t.buffer({2, 2}, DType::i32);
  const Instruction find{.op = OpKind::expert_ends,
                         .attrs = ExpertEndsAttrs{.ranks = 2, .rank = 1},
                         .reads = {t.buffer({2, 6}, DType::i32)},
                         .writes = {ends, counts}};
  CHECK(t.refusal(find) == "");
  CHECK_THAT(t.refusal(with_read(find, 0, t.buffer({2, 5}, DType::i32))), Contains("evenly"));
  CHECK_THAT(t.refusal(with_attrs(find, ExpertEndsAttrs{.ranks = 2, .rank = 2})),
             Contains("evenly"));
  const Instruction forth{
      .op = OpKind::exchange_rows, .reads = {t.run({20, 4}), counts}, .writes = {t.run({40, 4})}};
  CHECK(t.refusal(forth) == "");
  CHECK_THAT(t.refusal(with_write(forth, 0, t.run({60, 4}))), Contains("9 elements of i32"));
  CHECK_THAT(t.refusal(with_write(forth, 0, t.run({20, 8}))), Contains("columns"));
  const Instruction back{.op = OpKind::exchange_rows,
                         .attrs = ExchangeAttrs{.back = true},
                         .reads = {t.run({40, 4}), counts},
                         .writes = {t.run({20, 4})}};
  CHECK(t.refusal(back) == "");
  CHECK_FALSE(rule_of(OpKind::exchange_rows).repeatable);
}

TEST_CASE("the gradients of rows travel the other way") {
  OneOp t;
  Instruction op{.op = OpKind::exchange_rows,
                 .reads = {t.parameter({20, 4}), t.buffer({2, 2}, DType::i32)},
                 .writes = {t.run({40, 4})},
                 .channel = 3};
  CHECK(t.backward_ops(op) == std::vector<std::string>{"exchange_rows"});
  CHECK(attrs_as<ExchangeAttrs>(t.program.instructions[0].attrs).back);
  CHECK(t.program.instructions[0].channel == 3);
}

TEST_CASE("the builder's experts: memory has room for all rows of all slots") {
  Program program;
  Builder b(program, {.batch = 2});
  b.unit("u");
  const BufferId notes = b.input("notes", InputRole::features, DType::f32, {5, 6});
  const BufferId x =
      b.linear(notes, b.parameter("in.weight", {6, 6}, Init::normal), kNone, Activation::none);
  const auto routed =
      b.route(x, b.parameter("gate.weight", {4, 6}, Init::normal), kNone, 3, {.normalised = true});
  CHECK(program.at(routed.logits).shape == Shape{10, 4});
  const auto [places, ends] = b.group_rows(routed.experts, 4);
  const BufferId spread = b.spread_rows(x, places);
  const BufferId y =
      b.grouped_linear(spread, b.parameter("experts.weight", {4 * 7, 6}, Init::normal), ends);
  CHECK(program.at(spread).shape == Shape{30, 6});
  CHECK(program.at(y).shape == Shape{30, 7});
  CHECK(program.at(y).name == "u.experts");
  CHECK(program.at(ends).shape == Shape{4});
  CHECK(program.at(b.combine_rows(y, places, routed.weights)).shape == Shape{10, 7});
}
