#include "kernels/attention_shape.h"

#include <catch2/catch.hpp>
#include <vector>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

TEST_CASE("a spec that describes no attention is refused with its op, dtype or shape") {
  const TensorSpec qkv{{8, 24}, DType::f32};
  KernelSpec spec{.op = OpKind::attention, .attrs = {}, .in = {&qkv, 1}, .out = {}};
  spec.attrs = AttentionAttrs{.heads = 3, .seq_len = 5};
  REQUIRE_THROWS_WITH(
      attention::shape_of(spec),
      "attention expects qkv (B*T, (heads + 2*kv_heads)*D), came (8, 24) with heads "
      "= 3, kv_heads = 3, T = 5");
  spec.attrs = AttentionAttrs{.heads = 3, .seq_len = 8};
  spec.op = OpKind::linear;
  REQUIRE_THROWS_WITH(attention::shape_of(spec), "attention kernels do not compute the op linear");
  spec.op = OpKind::attention_grad;
  REQUIRE_THROWS_WITH(attention::shape_of(spec),
                      "attention_grad came with 1 inputs, expected 4 or 6");
  const TensorSpec ids{{8, 24}, DType::i32};
  spec.op = OpKind::attention;
  spec.in = {&ids, 1};
  REQUIRE_THROWS_WITH(attention::shape_of(spec),
                      "attention kernels exist for f32, bf16 and f16, not for i32");
}

TEST_CASE("a spec of separate queries, keys and values has a group, strides and a window") {
  const TensorSpec q{{10, 24}, DType::bf16}, kv{{10, 8}, DType::bf16}, y{{10, 24}, DType::bf16},
      lse{{2, 6, 5}, DType::f32};
  const TensorSpec apart[] = {y, q, kv, kv, y, lse};
  KernelSpec spec{.op = OpKind::attention_grad, .attrs = {}, .in = apart, .out = {}};
  AttentionAttrs attrs{.heads = 6, .seq_len = 5, .kv_heads = 2, .window = 3, .scale = 0.5};
  spec.attrs = attrs;
  attention::AttentionShape shape = attention::shape_of(spec);
  REQUIRE(!shape.packed);
  REQUIRE(shape.batch == 2);
  REQUIRE(shape.head_size == 4);
  REQUIRE(shape.group() == 3);
  REQUIRE(shape.q_stride() == 24);
  REQUIRE(shape.kv_stride() == 8);
  REQUIRE(shape.window == 3);
  REQUIRE(shape.divisor == 2);
  // Queries see 1, 2, 3, 3 and 3 keys.
  REQUIRE(shape.seen_pairs(0, 5) == 12);
  REQUIRE(shape.seen_pairs(1, 4) == 8);

  attrs.window = 0, attrs.scale = 0;
  attrs.causal = false;
  spec.attrs = attrs;
  shape = attention::shape_of(spec);
  REQUIRE((!shape.causal && shape.window == 5));
  REQUIRE(shape.seen_pairs(0, 5) == 25);
  REQUIRE(shape.seen_pairs(1, 4) == 15);
  attrs.window = 3;
  spec.attrs = attrs;
  REQUIRE_THROWS_AS(attention::shape_of(spec), InternalError);
  attrs.window = 0, attrs.causal = true;

  const TensorSpec qkv{{10, 40}, DType::bf16};
  const TensorSpec packed[] = {y, qkv, y, lse};
  spec.in = packed;
  spec.attrs = attrs;
  shape = attention::shape_of(spec);
  REQUIRE(shape.packed);
  REQUIRE(shape.head_size == 4);
  REQUIRE(shape.q_stride() == 40);
  REQUIRE(shape.kv_stride() == 40);
  REQUIRE(shape.window == 5);
  REQUIRE(shape.divisor == 2);
  std::vector<char> memory(10 * 40 * 2);
  const Tensor tensor{memory.data(), {10, 40}, DType::bf16};
  const attention::HeadTensors parts = attention::head_tensors(shape, {&tensor, 1}, 0);
  REQUIRE(parts.q == memory.data());
  REQUIRE(parts.k == memory.data() + 24 * 2);
  REQUIRE(parts.v == memory.data() + 32 * 2);

  REQUIRE(!shape.documents);
  const TensorSpec documents{{2, 5}, DType::i32};
  const TensorSpec packed_documents[] = {y, qkv, y, lse, documents};
  spec.in = packed_documents;
  shape = attention::shape_of(spec);
  REQUIRE(shape.packed);
  REQUIRE(shape.documents);
  const TensorSpec few[] = {y, qkv, y, lse, {{5}, DType::i32}};
  spec.in = few;
  REQUIRE_THROWS_WITH(attention::shape_of(spec),
                      "attention_grad expects documents i32 (10), came (5)");

  const TensorSpec wrong[] = {y, q, kv, q, y, lse};
  spec.in = wrong;
  REQUIRE_THROWS_WITH(attention::shape_of(spec),
                      "attention_grad expects q (B*T, heads*D), k and v (B*T, kv_heads*D), came "
                      "(10, 24), (10, 8) and (10, 24) with heads = 6, kv_heads = 2, T = 5");
}

}  // namespace
}  // namespace dstrain
