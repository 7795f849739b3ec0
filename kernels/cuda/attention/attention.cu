#include <cmath>

#include "kernels/attention_shape.h"
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/kernels.cuh"
#include "runtime/core/error.h"
#include "kernels/operands.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

using attention::AttentionShape;

bool on_tensor_cores(const AttentionShape& p) {
  return is_16bit(p.dtype) && p.head_size <= kWidestHead;
}

// Returns whether the rows of every head can be read and written 16 bytes at a time.
bool rows_are_vectors(const AttentionShape& p, std::initializer_list<const void*> operands) {
  if (p.head_size % 8 != 0) return false;
  for (const void* at : operands)
    if (reinterpret_cast<uintptr_t>(at) % 16 != 0) return false;
  return true;
}

class AttentionKernel : public Kernel {
 public:
  AttentionKernel(const KernelSpec& spec, const LaunchContext& context)
      : shape_(attention::shape_of(spec)),
        site_(attrs_as<AttentionAttrs>(spec.attrs).site),
        context_(context) {
    // Kernels count rows in 32 bits.
    check(shape_.seq <= INT32_MAX - 256,
          "attention of {} positions; there can be at most 2^31 - 257", shape_.seq);
  }

 protected:
  AttentionArguments arguments(const KernelCall& call) const {
    AttentionArguments a;
    a.heads = static_cast<int>(shape_.heads);
    a.head_size = static_cast<int>(shape_.head_size);
    a.seq = shape_.seq;
    a.exponent_scale = shape_.exponent_scale();
    a.score_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(shape_.head_size)));
    a.drop_threshold = shape_.drop_threshold;
    a.drop_scale = shape_.drop_scale;
    a.site = site_;
    a.state = call.state;
    a.sample_offset = call.sample_offset;
    return a;
  }

  const AttentionShape shape_;
  const uint32_t site_;
  const LaunchContext context_;
};

template <class T>
class Attention final : public AttentionKernel {
 public:
  using AttentionKernel::AttentionKernel;

  void run(const KernelCall& call) const override {
    AttentionArguments a = arguments(call);
    a.qkv = call.in[0].data;
    a.y = call.out[0].data;
    a.lse = call.out[1].as<float>();
    a.vector = rows_are_vectors(shape_, {a.qkv, a.y});
    if constexpr (!std::is_same_v<T, float>) {
      if (on_tensor_cores(shape_)) return launch_forward<T>(a, shape_.batch, context_);
    }
    launch_plain_forward<T>(a, shape_.batch, context_);
  }
};

template <class T>
class AttentionGrad final : public AttentionKernel {
 public:
  using AttentionKernel::AttentionKernel;

  void run(const KernelCall& call) const override {
    AttentionArguments a = arguments(call);
    a.d_y = call.in[0].data;
    a.qkv = call.in[1].data;
    a.y = call.in[2].data;
    a.lse = call.in[3].as<float>();
    a.d_qkv = call.out[0].data;
    a.delta = workspace<float>(call, shape_.batch * shape_.heads * shape_.seq);
    a.vector = rows_are_vectors(shape_, {a.d_y, a.qkv, a.y, a.d_qkv});
    launch_delta<T>(a, shape_.batch, context_);
    if constexpr (!std::is_same_v<T, float>) {
      if (on_tensor_cores(shape_)) {
        launch_query_gradient<T>(a, shape_.batch, context_);
        launch_key_gradients<T>(a, shape_.batch, context_);
        return;
      }
    }
    launch_plain_gradients<T>(a, shape_.batch, context_);
  }
};

template <class T>
std::unique_ptr<Kernel> make_of(const KernelSpec& spec, const LaunchContext& context) {
  if (spec.op == OpKind::attention_grad) return std::make_unique<AttentionGrad<T>>(spec, context);
  return std::make_unique<Attention<T>>(spec, context);
}

}  // namespace

int64_t attention_workspace_bytes(const KernelSpec& spec) {
  const AttentionShape p = attention::shape_of(spec);
  if (spec.op == OpKind::attention) return 0;
  return p.batch * p.heads * p.seq * size_of(DType::f32);  // delta
}

std::unique_ptr<Kernel> make_attention(const KernelSpec& spec, const LaunchContext& context) {
  switch (attention::shape_of(spec).dtype) {
    case DType::bf16:
      return make_of<bf16>(spec, context);
    case DType::f16:
      return make_of<f16>(spec, context);
    default:
      return make_of<float>(spec, context);
  }
}

}  // namespace dstrain::DSTRAIN_BACKEND
