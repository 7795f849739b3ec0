#include "kernels/attention_shape.h"
#include "kernels/cuda/attention/attention.cuh"
#include "kernels/cuda/attention/hopper/hopper.cuh"
#include "kernels/cuda/attention/kernels.cuh"
#include "kernels/operands.h"
#include "runtime/core/error.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

using attention::AttentionShape;

// Returns whether the kernels on tensor cores do it: they have no tanh of scores.
bool on_tensor_cores(const AttentionShape& p) {
  return is_16bit(p.dtype) && p.head_size <= kWidestHead && p.limit == 0;
}

// Returns whether the rows of every head can be read and written 16 bytes at a time.
bool rows_are_vectors(const AttentionShape& p, std::initializer_list<const void*> operands) {
  if (p.head_size % 8 != 0) return false;
  for (const void* at : operands)
    if (reinterpret_cast<uintptr_t>(at) % 16 != 0) return false;
  return true;
}

// The scratch memory of attention_grad: delta, and with documents their ends.
int64_t delta_words(const AttentionShape& p) {
  return p.batch * p.heads * p.seq;
}
int64_t workspace_words(const AttentionShape& p) {
  return delta_words(p) + (p.documents ? p.batch * p.seq : 0);
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
    a.kv_heads = static_cast<int>(shape_.kv_heads);
    a.group = static_cast<int>(shape_.group());
    a.q_stride = static_cast<int>(shape_.q_stride());
    a.kv_stride = static_cast<int>(shape_.kv_stride());
    a.causal = shape_.causal;
    a.window = static_cast<int>(shape_.window);
    a.head_size = static_cast<int>(shape_.head_size);
    a.seq = shape_.seq;
    a.exponent_scale = shape_.exponent_scale();
    a.score_scale = static_cast<float>(1 / shape_.divisor);
    a.limit = static_cast<float>(shape_.limit);
    a.drop_threshold = shape_.drop_threshold;
    a.drop_scale = shape_.drop_scale;
    a.site = site_;
    a.first_head = shape_.first_head;
    a.state = call.state;
    a.sample_offset = call.sample_offset;
    return a;
  }

  // Sets the addresses of q, k and v, from input `first` on.
  void set_inputs(AttentionArguments& a, const KernelCall& call, size_t first) const {
    const attention::HeadTensors in = attention::head_tensors(shape_, call.in, first);
    a.q = in.q;
    a.k = in.k;
    a.v = in.v;
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
    set_inputs(a, call, 0);
    a.documents = attention::documents_of(shape_, call.in, 0);
    a.y = call.out[0].data;
    a.lse = call.out[1].as<float>();
    a.vector = rows_are_vectors(shape_, {a.q, a.k, a.v, a.y});
    if constexpr (!std::is_same_v<T, float>) {
      if (on_tensor_cores(shape_)) {
        if (!launch_hopper_forward<T>(a, shape_.batch, context_))
          launch_forward<T>(a, shape_.batch, context_);
        return;
      }
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
    set_inputs(a, call, 1);
    a.documents = attention::documents_of(shape_, call.in, 1);
    const size_t result = attention::result_index(shape_);
    const Tensor &y = call.in[result], &lse = call.in[result + 1];
    a.y = y.data;
    a.lse = lse.as<float>();
    const attention::HeadTensors gradients = attention::head_tensors(shape_, call.out, 0);
    a.d_q = gradients.q;
    a.d_k = gradients.k;
    a.d_v = gradients.v;
    a.delta = workspace<float>(call, workspace_words(shape_));
    a.vector = rows_are_vectors(shape_, {a.d_y, a.q, a.k, a.v, a.y, a.d_q, a.d_k, a.d_v});
    launch_delta<T>(a, shape_.batch, context_);
    if (a.documents) {
      a.end_queries = reinterpret_cast<int32_t*>(a.delta + delta_words(shape_));
      launch_end_queries(a, shape_.batch, context_);
    }
    if constexpr (!std::is_same_v<T, float>) {
      if (on_tensor_cores(shape_)) {
        if (launch_hopper_gradients<T>(a, shape_.batch, context_)) return;
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
  return workspace_words(p) * size_of(DType::f32);
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
