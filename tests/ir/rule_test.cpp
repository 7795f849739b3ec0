// What holds for the rules of all ops.
#include <set>

#include "tests/ir/one_op.h"

using namespace dstrain;

TEST_CASE("every op has a rule that knows its kind and has a name of its own") {
  std::set<std::string_view> names;
  for (int i = 0; i < kOpKinds; ++i) {
    const auto op = static_cast<OpKind>(i);
    CHECK(rule_of(op).kind == op);
    CHECK(name_of(op) == rule_of(op).name);
    names.insert(name_of(op));
  }
  CHECK(names.size() == static_cast<size_t>(kOpKinds));
}

TEST_CASE("an op with a kernel is on the compute queue; collectives but messages pass a ring") {
  for (int i = 0; i < kOpKinds; ++i) {
    const OpRule& rule = rule_of(static_cast<OpKind>(i));
    CAPTURE(rule.name);
    if (rule.done_by == DoneBy::kernel) {
      CHECK(rule.queue == Queue::compute);
      CHECK(rule.check != nullptr);
    }
    const bool message = rule.kind == OpKind::send || rule.kind == OpKind::recv;
    CHECK((rule.ring_passes > 0) == (rule.done_by == DoneBy::collective && !message));
    if (rule.done_by != DoneBy::kernel)
      CHECK((rule.attrs == 0 || rule.kind == OpKind::exchange_rows));
  }
}

TEST_CASE("a collective is of one kind, and knows whether it adds over ranks") {
  for (int i = 0; i < kOpKinds; ++i) {
    const auto op = static_cast<OpKind>(i);
    CAPTURE(name_of(op));
    CHECK(rule_of(op).collective.has_value() == is_collective(op));
    const bool adds = op == OpKind::all_reduce || op == OpKind::reduce_scatter;
    CHECK(adds_over_ranks(op) == adds);
    CHECK(makes_sums_over_ranks(op) == (adds || op == OpKind::all_to_all));
  }
  // Messages have two ends; other ops have their collective's name.
  CHECK(rule_of(OpKind::send).collective == Collective::message);
  CHECK(rule_of(OpKind::recv).collective == Collective::message);
  for (const OpKind op :
       {OpKind::all_reduce, OpKind::reduce_scatter, OpKind::all_gather, OpKind::all_to_all})
    CHECK(name_of(*rule_of(op).collective) == name_of(op));
}

TEST_CASE("the ops of the list with a family of kernels are those that a kernel does") {
  for (int i = 0; i < kOpKinds; ++i) {
    const auto op = static_cast<OpKind>(i);
    CAPTURE(name_of(op));
    CHECK((family_of(op) != OpFamily::none) == has_kernel(op));
  }
  CHECK(family_of(OpKind::embed) == OpFamily::memory_bound);
  CHECK(family_of(OpKind::pack_weight) == OpFamily::product);
  CHECK(family_of(OpKind::attention_grad) == OpFamily::attention);
  CHECK(family_of(OpKind::orthogonalize) == OpFamily::newton_schulz);
  CHECK(family_of(OpKind::send) == OpFamily::none);
}

TEST_CASE("ops with gradients are a model's, but for those that bring its values to other ranks") {
  const std::set<OpKind> moves{OpKind::split_columns,  OpKind::join_columns, OpKind::all_gather,
                               OpKind::reduce_scatter, OpKind::all_to_all,   OpKind::exchange_rows};
  for (int i = 0; i < kOpKinds; ++i) {
    const OpRule& rule = rule_of(static_cast<OpKind>(i));
    CAPTURE(rule.name);
    // A pass joins the ops of add_layer_norm, which has no gradient of its own. The results of a sort and of group_rows are
    // indices, and uniform reads nothing.
    const std::set<OpKind> without{OpKind::add_layer_norm, OpKind::sort, OpKind::group_rows,
                                   OpKind::uniform};
    const bool none = without.contains(rule.kind);
    CHECK((rule.backward != nullptr || none) == (rule.of_model || moves.contains(rule.kind)));
    CHECK_FALSE((rule.of_model && moves.contains(rule.kind)));
  }
}

TEST_CASE("what may be repeated is computed by a kernel or brought by other ranks") {
  int repeatable = 0;
  for (int i = 0; i < kOpKinds; ++i) {
    const OpRule& rule = rule_of(static_cast<OpKind>(i));
    CAPTURE(rule.name);
    repeatable += rule.repeatable;
    if (rule.repeatable)
      CHECK((rule.done_by == DoneBy::kernel || rule.done_by == DoneBy::collective));
  }
  CHECK(repeatable > 0);
  for (const OpKind op : {OpKind::recv, OpKind::all_reduce, OpKind::load_batch, OpKind::accumulate,
                          OpKind::adam, OpKind::commit_state, OpKind::finish_gradients})
    CHECK_FALSE(rule_of(op).repeatable);
}

TEST_CASE("an op refuses the attributes of another one") {
  OneOp t;
  const BufferId a = t.run({4}), b = t.run({4}), sum = t.run({4});
  Instruction op{.op = OpKind::add, .reads = {a, b}, .writes = {sum}};
  CHECK(t.refusal(op) == "");
  op.attrs = EmbedAttrs{};
  CHECK_THAT(t.refusal(op), Catch::Contains("add came with the attributes of another op"));
}

TEST_CASE("attributes that are not given are the defaults") {
  CHECK(attrs_as<LayerNormAttrs>({}) == LayerNormAttrs{});
  CHECK(attrs_as<LayerNormAttrs>(LayerNormAttrs{0.5f}).eps == 0.5f);
  CHECK_THROWS(attrs_as<LayerNormAttrs>(EmbedAttrs{}));
}
