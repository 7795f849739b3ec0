#include "kernels/attention_shape.h"

#include "runtime/core/error.h"

namespace dstrain::attention {

AttentionShape shape_of(const KernelSpec& spec) {
  const bool grad = spec.op == OpKind::attention_grad;
  check(spec.op == OpKind::attention || grad, "attention kernels do not compute the op {}",
        name_of(spec.op));
  const size_t qkv_index = grad ? 1 : 0;
  check(spec.in.size() > qkv_index, "{} came with {} inputs, expected {}", name_of(spec.op),
        spec.in.size(), grad ? 4 : 1);
  const TensorSpec& qkv = spec.in[qkv_index];
  check(qkv.dtype == DType::f32 || is_16bit(qkv.dtype),
        "attention kernels exist for f32, bf16 and f16, not for {}", name_of(qkv.dtype));
  const auto attrs = attrs_as<AttentionAttrs>(spec.attrs);
  const int64_t heads = attrs.heads, seq = attrs.seq_len;
  check(qkv.shape.rank == 2 && heads > 0 && seq > 0 && qkv.shape[0] % seq == 0 &&
            qkv.shape[1] % (3 * heads) == 0 && qkv.shape.elements() > 0,
        "attention expects qkv (B*T, 3*heads*D), came {} with heads = {}, T = {}",
        to_string(qkv.shape), heads, seq);
  AttentionShape shape;
  shape.dtype = qkv.dtype;
  shape.heads = heads;
  shape.seq = seq;
  shape.batch = qkv.shape[0] / seq;
  shape.head_size = qkv.shape[1] / (3 * heads);
  const DropoutRule rule(attrs.dropout);
  shape.drop_threshold = rule.threshold;
  shape.drop_scale = rule.scale;
  return shape;
}

}  // namespace dstrain::attention
