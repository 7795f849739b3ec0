// What the rules of all ops say for profiles, proofs and seeded faults.
#include <set>

#include "runtime/ir/ops/dropout.h"
#include "tests/ir/one_op.h"

namespace dstrain {
namespace {

// Returns the ops whose rule `has` something.
template <class Has>
std::set<OpKind> ops_where(const Has& has) {
  std::set<OpKind> ops;
  for (int i = 0; i < kOpKinds; ++i)
    if (has(rule_of(static_cast<OpKind>(i)))) ops.insert(static_cast<OpKind>(i));
  return ops;
}

TEST_CASE(
    "a model needs the FLOPs of its ops and of their gradients, but not of what is repeated") {
  const auto counts = [](const OpRule& rule) { return rule.flops != nullptr; };
  CHECK(ops_where([&](const OpRule& r) { return counts(r) && r.needed_part == 1; }) ==
        std::set{OpKind::linear, OpKind::contract, OpKind::convolution, OpKind::attention,
                 OpKind::grouped_linear, OpKind::grouped_input_grad, OpKind::grouped_weight_grad,
                 OpKind::linear_input_grad, OpKind::convolution_input_grad,
                 OpKind::convolution_weight_grad, OpKind::linear_weight_grad});
  // A product of its five computes the scores again.
  CHECK(ops_where([](const OpRule& r) { return r.needed_part > 0 && r.needed_part < 1; }) ==
        std::set{OpKind::attention_grad});
  CHECK(rule_of(OpKind::attention_grad).needed_part == Approx(0.8));
  // Those of optimizers and codecs are not the model's.
  CHECK(ops_where([](const OpRule& r) { return r.needed_part == 0; }) ==
        std::set{OpKind::orthogonalize, OpKind::project_rows, OpKind::project_columns,
                 OpKind::expand_factors});
  for (const OpKind op : ops_where([](const OpRule& r) { return r.needed_part != 1; })) {
    CAPTURE(name_of(op));
    CHECK(counts(rule_of(op)));
  }
}

TEST_CASE(
    "a product of the forward phase is needed, its repetition is not, and its gradients are") {
  OneOp t;
  const BufferId x = t.run({6, 4}), w = t.parameter({3, 4}), y = t.run({6, 3});
  Instruction op{.op = OpKind::linear, .reads = {x, w}, .writes = {y}};
  op.phase = Phase::forward;
  CHECK(needed_flops(t.program, op) == 2 * 6 * 4 * 3);
  op.phase = Phase::backward;
  CHECK(needed_flops(t.program, op) == 0);
  Instruction gradient{
      .op = OpKind::linear_weight_grad, .reads = {y, x}, .writes = {t.buffer({3, 4})}};
  gradient.phase = Phase::backward;
  CHECK(needed_flops(t.program, gradient) == 2 * 6 * 4 * 3);
  Instruction without{.op = OpKind::add, .reads = {x, x}, .writes = {t.run({6, 4})}};
  CHECK(needed_flops(t.program, without) == 0);
}

TEST_CASE("an embedding and a take look up rows") {
  CHECK(ops_where([](const OpRule& r) { return r.looks_up; }) ==
        std::set{OpKind::embed, OpKind::take});
}

TEST_CASE("a profiler counts products, attention, layer norms and activations") {
  CHECK(ops_where([](const OpRule& r) { return r.profiled != nullptr; }) ==
        std::set{OpKind::linear, OpKind::attention, OpKind::layer_norm, OpKind::add_layer_norm,
                 OpKind::activation, OpKind::gated, OpKind::contract, OpKind::convolution,
                 OpKind::batch_norm, OpKind::grouped_linear});
  OneOp t;
  const BufferId x = t.run({6, 4}), w = t.parameter({3, 4}), y = t.run({6, 3});
  const auto of = [&](OpKind kind, const OpAttrs& attrs, BufferId written,
                      const WeightSizes& weight) {
    const Instruction op{.op = kind, .attrs = attrs, .reads = {x, w}, .writes = {written}};
    return rule_of(kind).profiled(t.program, op, weight);
  };
  // The model may have 2 rows of a weight of 3.
  const CountedWork product = of(OpKind::linear, {}, y, {8, 2});
  CHECK((product.macs == 6 * 8 && product.flops == 2 * 6 * 8));
  CHECK(of(OpKind::linear, kRelu, y, {8, 2}).flops == 2 * 6 * 8 + 6 * 2);
  const CountedWork attention =
      of(OpKind::attention, AttentionAttrs{.heads = 1, .seq_len = 3, .window = 2}, x, {});
  CHECK((attention.macs == 2 * 24 * 3 && attention.flops == 4 * 24 * 3));
  for (const OpKind norm : {OpKind::layer_norm, OpKind::add_layer_norm, OpKind::batch_norm}) {
    CHECK(of(norm, {}, x, {}).flops == 5 * 24);
    CHECK(of(norm, {}, x, {}).macs == 0);
  }
  for (const OpKind each : {OpKind::activation, OpKind::gated})
    CHECK(of(each, {}, x, {}).flops == 24);
}

TEST_CASE("a module is named by an op of the model, and a weight is prepared for products") {
  for (const OpKind op : ops_where([](const OpRule& r) { return !r.module.empty(); })) {
    CAPTURE(name_of(op));
    CHECK(rule_of(op).of_model);
  }
  CHECK(rule_of(OpKind::linear).module == "Linear");
  CHECK(rule_of(OpKind::add_layer_norm).module == rule_of(OpKind::layer_norm).module);
  CHECK(ops_where([](const OpRule& r) { return r.prepares_weight; }) ==
        std::set{OpKind::pack_weight, OpKind::unpack_weight});
}

TEST_CASE("products of a weight may read it packed, at the place that pack_weight's result has") {
  CHECK(ops_where([](const OpRule& r) { return r.packed_weight > 0; }) ==
        std::set{OpKind::linear, OpKind::linear_input_grad});
  CHECK(rule_of(OpKind::linear).packed_weight == 3);
  CHECK(rule_of(OpKind::linear_input_grad).packed_weight == 2);
}

TEST_CASE("an op joins two others, whose rows it has in common") {
  CHECK(ops_where([](const OpRule& r) { return r.joins.has_value(); }) ==
        std::set{OpKind::layer_norm_grad, OpKind::add_layer_norm});
  const Instruction add{.op = OpKind::add_dropout, .reads = {0, 1}, .writes = {2}},
      norm{.op = OpKind::layer_norm, .reads = {2, 3, 4}, .writes = {5, 6, 7}},
      of_other{.op = OpKind::layer_norm, .reads = {1, 3, 4}, .writes = {5, 6, 7}};
  const TwoOps sum = *rule_of(OpKind::add_layer_norm).joins;
  CHECK(sum.join(add, norm)->reads == std::vector<BufferId>{0, 1, 3, 4});
  CHECK_FALSE(sum.join(add, of_other));
  const Instruction input{
      .op = OpKind::layer_norm_input_grad, .reads = {0, 1, 2, 3, 4, kNone}, .writes = {5}};
  Instruction weights{.op = OpKind::layer_norm_weight_grad,
                      .accumulate = Accumulate::after_first_micro,
                      .reads = {0, 1, 3, 4},
                      .writes = {6, 7}};
  const TwoOps gradients = *rule_of(OpKind::layer_norm_grad).joins;
  CHECK(gradients.join(input, weights)->accumulate == Accumulate::after_first_micro);
  CHECK(gradients.join(input, weights)->reads == input.reads);
  weights.reads[1] = 8;
  CHECK_FALSE(gradients.join(input, weights));
}

TEST_CASE("what computes is a kernel or fills memory, and the gradients end in one op") {
  CHECK(ops_where([](const OpRule& r) { return computes(r.kind) && !has_kernel(r.kind); }) ==
        std::set{OpKind::zero});
  CHECK(ops_where([](const OpRule& r) { return has_kernel(r.kind) && !computes(r.kind); }).empty());
  CHECK(ops_where([](const OpRule& r) { return ends_gradients(r.kind); }) ==
        std::set{OpKind::finish_gradients});
}

TEST_CASE("weights' gradients are sums over rows, and then over micro-batches") {
  CHECK(ops_where([](const OpRule& r) { return r.gradient_terms == GradientTerms::rows; }) ==
        std::set{OpKind::linear_weight_grad, OpKind::grouped_weight_grad, OpKind::sum_rows,
                 OpKind::embed_token_grad, OpKind::embed_position_grad,
                 OpKind::layer_norm_weight_grad, OpKind::layer_norm_grad,
                 OpKind::rms_norm_weight_grad});
  CHECK(ops_where([](const OpRule& r) {
          return r.gradient_terms == GradientTerms::micro_batches;
        }) == std::set{OpKind::accumulate});
}

TEST_CASE("an op adds to its sums and replaces its other outputs") {
  const auto sums = [](OpKind op, size_t i) { return rule_of(op).sums.contains(i); };
  for (const OpKind loss : {OpKind::cross_entropy, OpKind::cross_entropy_part})
    CHECK((sums(loss, 0) && !sums(loss, 1)));
  for (const OpKind packs : {OpKind::quantize_int4, OpKind::requantize_int4})
    CHECK((!sums(packs, 0) && sums(packs, 1)));
  CHECK((!sums(OpKind::layer_norm_grad, 0) && sums(OpKind::layer_norm_grad, 1) &&
         sums(OpKind::layer_norm_grad, 2)));
  CHECK((sums(OpKind::layer_norm_weight_grad, 0) && sums(OpKind::layer_norm_weight_grad, 1)));
  CHECK((sums(OpKind::scan, 0) && !sums(OpKind::sort, 0)));
}

TEST_CASE("what makes a loss reads targets, and is the model's") {
  CHECK(ops_where([](const OpRule& r) { return makes_loss(r.kind); }) ==
        std::set{OpKind::cross_entropy, OpKind::cross_entropy_part, OpKind::sum_loss});
  CHECK(rule_of(OpKind::class_sums).reads_targets);
}

TEST_CASE("what moves weights, clips or keeps a residual is a kernel, and no op of a model") {
  const auto optimizers = ops_where(
      [](const OpRule& r) { return r.moves_weights || r.clips_gradient || r.adds_residual; });
  CHECK_FALSE(optimizers.empty());
  for (const OpKind op : optimizers) {
    CAPTURE(name_of(op));
    CHECK((has_kernel(op) && !rule_of(op).of_model && !rule_of(op).repeatable));
  }
}

TEST_CASE("a message has an end that sends and an end that receives") {
  OneOp t;
  const BufferId x = t.run({4});
  const Instruction send{.op = OpKind::send, .reads = {x}}, recv{.op = OpKind::recv, .writes = {x}};
  CHECK((sends_message(send) && !receives_message(send) && message_of(send) == x));
  CHECK((receives_message(recv) && !sends_message(recv) && message_of(recv) == x));
  const Instruction draws{.op = OpKind::random_factor, .writes = {x}};
  CHECK_FALSE(receives_message(draws));
}

TEST_CASE("dropout is found in the attributes of every op that has it") {
  CHECK(dropout_of({}) == 0);
  CHECK(dropout_of(EmbedAttrs{}) == 0);
  CHECK(dropout_of(AttentionAttrs{.dropout = 0.5f}) == 0.5f);
  CHECK(dropout_of(DropoutAttrs{.dropout = 0.5f}) == 0.5f);
  CHECK(dropout_of(AddLayerNormAttrs{.add = {.dropout = 0.5f}}) == 0.5f);
}

TEST_CASE("a mask of the first rows or heads differs where the rank's are others") {
  const AttentionAttrs heads{.dropout = 0.5f, .heads = 2, .first_head = 2};
  CHECK(with_first_mask(heads) == OpAttrs(AttentionAttrs{.dropout = 0.5f, .heads = 2}));
  const DropoutAttrs part{.dropout = 0.5f, .part = {.first = 4, .all = 8}};
  CHECK(with_first_mask(part) == OpAttrs(DropoutAttrs{.dropout = 0.5f, .part = {.all = 8}}));
  CHECK(with_first_mask(AddLayerNormAttrs{.add = part}) ==
        OpAttrs(AddLayerNormAttrs{.add = {.dropout = 0.5f, .part = {.all = 8}}}));
  CHECK_FALSE(with_first_mask(AttentionAttrs{.first_head = 2}));  // drops nothing
  CHECK_FALSE(with_first_mask(DropoutAttrs{.dropout = 0.5f}));
  CHECK_FALSE(with_first_mask(EmbedAttrs{.part = {.first = 4, .all = 8}}));
}

}  // namespace
}  // namespace dstrain
