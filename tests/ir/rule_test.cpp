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
    if (rule.done_by != DoneBy::kernel) CHECK(rule.attrs == 0);
  }
}

TEST_CASE("what may be repeated is computed by a kernel that keeps its inputs") {
  int repeatable = 0;
  for (int i = 0; i < kOpKinds; ++i) {
    const OpRule& rule = rule_of(static_cast<OpKind>(i));
    CAPTURE(rule.name);
    repeatable += rule.repeatable;
    if (rule.repeatable) CHECK(rule.done_by == DoneBy::kernel);
  }
  CHECK(repeatable > 0);
  for (const OpKind op : {OpKind::recv, OpKind::load_batch, OpKind::accumulate, OpKind::adam,
                          OpKind::commit_state, OpKind::finish_gradients})
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
