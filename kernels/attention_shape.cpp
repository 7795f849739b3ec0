#include "kernels/attention_shape.h"

#include <algorithm>

#include "runtime/core/error.h"

namespace dstrain::attention {
namespace {

// Returns the rows of an operand, whose columns are its last dimension.
int64_t rows_of(const TensorSpec& part) {
  return part.shape.elements() / std::max<int64_t>(1, part.shape[-1]);
}

// Throws InternalError unless q, k and v, or the one tensor of them, fit the attributes.
void check_operands(const KernelSpec& spec, const AttentionShape& shape,
                    std::span<const TensorSpec> parts) {
  const auto has_heads = [&](const TensorSpec& part, int64_t heads) {
    return part.shape.elements() > 0 && rows_of(part) % shape.seq == 0 &&
           part.shape[-1] % heads == 0;
  };
  const bool sizes =
      shape.heads > 0 && shape.seq > 0 && shape.kv_heads > 0 && shape.heads % shape.kv_heads == 0;
  if (shape.packed) {
    check(sizes && has_heads(parts[0], shape.heads + 2 * shape.kv_heads),
          "attention expects qkv (B*T, (heads + 2*kv_heads)*D), came {} with heads = {}, "
          "kv_heads = {}, T = {}",
          to_string(parts[0].shape), shape.heads, shape.kv_heads, shape.seq);
    return;
  }
  const auto is_kv = [&](const TensorSpec& part) {
    return part.dtype == parts[0].dtype && rows_of(part) == rows_of(parts[0]) &&
           part.shape[-1] == parts[0].shape[-1] / shape.heads * shape.kv_heads;
  };
  check(sizes && has_heads(parts[0], shape.heads) && is_kv(parts[1]) && is_kv(parts[2]),
        "{} expects q (B*T, heads*D), k and v (B*T, kv_heads*D), came {}, {} and {} with heads = "
        "{}, kv_heads = {}, T = {}",
        name_of(spec.op), to_string(parts[0].shape), to_string(parts[1].shape),
        to_string(parts[2].shape), shape.heads, shape.kv_heads, shape.seq);
}

}  // namespace

AttentionShape shape_of(const KernelSpec& spec) {
  const bool grad = spec.op == OpKind::attention_grad;
  check(spec.op == OpKind::attention || grad, "attention kernels do not compute the op {}",
        name_of(spec.op));
  const size_t first = grad ? 1 : 0, others = grad ? 3 : 0;  // others: d_y, y, lse
  check(spec.in.size() > others && spec.in.size() <= others + 4,
        "{} came with {} inputs, expected {} or {}", name_of(spec.op), spec.in.size(), others + 1,
        others + 3);
  AttentionShape shape;
  shape.packed = spec.in.size() <= others + 2;
  shape.documents = (spec.in.size() - others) % 2 == 0;
  const auto parts = spec.in.subspan(first, shape.packed ? 1 : 3);
  shape.dtype = parts[0].dtype;
  check(shape.dtype == DType::f32 || is_16bit(shape.dtype),
        "attention kernels exist for f32, bf16 and f16, not for {}", name_of(shape.dtype));
  const auto attrs = attrs_as<AttentionAttrs>(spec.attrs);
  shape.heads = attrs.heads;
  shape.kv_heads = attrs.kv_heads > 0 ? attrs.kv_heads : attrs.heads;
  shape.first_head = attrs.first_head;
  shape.seq = attrs.seq_len;
  check_operands(spec, shape, parts);
  check(!shape.documents || (spec.in.back().dtype == DType::i32 &&
                             spec.in.back().shape.elements() == rows_of(parts[0])),
        "{} expects documents i32 ({}), came {}", name_of(spec.op), rows_of(parts[0]),
        to_string(spec.in.back().shape));
  shape.batch = rows_of(parts[0]) / shape.seq;
  shape.head_size =
      parts[0].shape[-1] / (shape.packed ? shape.heads + 2 * shape.kv_heads : shape.heads);
  shape.causal = attrs.causal;
  check(shape.causal || (attrs.window == 0 && !shape.documents),
        "{} has a window or documents, which attention that is not causal does not take",
        name_of(spec.op));
  shape.window = attrs.window > 0 && attrs.window < shape.seq ? attrs.window : shape.seq;
  shape.divisor =
      attrs.scale > 0 ? 1 / attrs.scale : std::sqrt(static_cast<double>(shape.head_size));
  shape.limit = attrs.softcap * shape.divisor;
  const DropoutRule rule(attrs.dropout);
  shape.drop_threshold = rule.threshold;
  shape.drop_scale = rule.scale;
  return shape;
}

const int32_t* documents_of(const AttentionShape& shape, std::span<const Tensor> inputs,
                            size_t first) {
  const size_t at = first + (shape.packed ? 1 : 3) + 2 * first;
  return shape.documents ? inputs[at].as<int32_t>() : nullptr;
}

HeadTensors head_tensors(const AttentionShape& shape, std::span<const Tensor> operands,
                         size_t first) {
  if (!shape.packed)
    return {operands[first].data, operands[first + 1].data, operands[first + 2].data};
  auto* const at = static_cast<std::byte*>(operands[first].data);
  const int64_t size = size_of(shape.dtype);
  return {at, at + shape.channels() * size, at + (shape.channels() + shape.kv_channels()) * size};
}

}  // namespace dstrain::attention
