#include "kernels/attention_shape.h"

#include <catch2/catch.hpp>

namespace dstrain {
namespace {

TEST_CASE("a spec that describes no attention is refused with its op, dtype or shape") {
  const TensorSpec qkv{{8, 24}, DType::f32};
  KernelSpec spec{.op = OpKind::attention, .attrs = {}, .in = {&qkv, 1}, .out = {}};
  spec.attrs = AttentionAttrs{.heads = 3, .seq_len = 5};
  REQUIRE_THROWS_WITH(attention::shape_of(spec),
                      "attention expects qkv (B*T, 3*heads*D), came (8, 24) with heads = 3, T = 5");
  spec.attrs = AttentionAttrs{.heads = 3, .seq_len = 8};
  spec.op = OpKind::linear;
  REQUIRE_THROWS_WITH(attention::shape_of(spec), "attention kernels do not compute the op linear");
  spec.op = OpKind::attention_grad;
  REQUIRE_THROWS_WITH(attention::shape_of(spec), "attention_grad came with 1 inputs, expected 4");
  const TensorSpec ids{{8, 24}, DType::i32};
  spec.op = OpKind::attention;
  spec.in = {&ids, 1};
  REQUIRE_THROWS_WITH(attention::shape_of(spec),
                      "attention kernels exist for f32, bf16 and f16, not for i32");
}

}  // namespace
}  // namespace dstrain
