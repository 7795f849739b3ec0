#include "kernels/cpu/attention/attention.h"

#include <utility>
#include <vector>

#include "kernels/cpu/attention/implementation.h"
#include "kernels/cpu/attention/portable.h"
#include "kernels/cpu/attention/schedule.h"
#include "kernels/cpu/attention/tiled/tiled.h"
#include "kernels/operands.h"
#include "runtime/core/isa/isa.h"
#include "runtime/core/threads/parts.h"

namespace dstrain {
namespace {

using attention::AttentionShape;
using attention::Implementation;
using attention::Operands;
using attention::shape_of;

bool is_grad(const KernelSpec& spec) {
  return spec.op == OpKind::attention_grad;
}

// The choice depends on the dtype, the limit and the machine alone, so that every plan computes the same bits.
const Implementation& implementation_for(const AttentionShape& shape) {
  const Implementation* tiled = nullptr;
  // The tiles have no tanh.
  if (shape.dtype == DType::bf16 && shape.limit == 0) {
    if (max_isa() == Isa::amx) tiled = attention::amx_implementation();
    if (max_isa() == Isa::avx512_bf16) tiled = attention::dot_implementation();
  }
  return tiled != nullptr ? *tiled : attention::portable_implementation();
}

int64_t scratch_bytes(const AttentionShape& shape, const Implementation& implementation,
                      bool grad) {
  return attention::round_up(
      grad ? implementation.backward_bytes(shape) : implementation.forward_bytes(shape), 64);
}

class AttentionKernel : public Kernel {
 public:
  explicit AttentionKernel(const KernelSpec& spec)
      : shape_(shape_of(spec)),
        implementation_(implementation_for(shape_)),
        site_(attrs_as<AttentionAttrs>(spec.attrs).site),
        threads_(spec.threads),
        scratch_(scratch_bytes(shape_, implementation_, is_grad(spec))) {}

 protected:
  Operands operands(const KernelCall& call) const {
    Operands o;
    if (shape_.drop_threshold > 0) {
      o.key = stream_key(call.state->seed, kDropoutStream + site_);
      o.first_sample = static_cast<uint64_t>(call.state->first_sample + call.sample_offset);
    }
    return o;
  }

  // Calls run(task, scratch) for every task, on the thread that it was scheduled for or on one that has no tasks left, with
  // the scratch memory of the thread that runs it.
  template <class Tasks, class Run>
  void for_each_task(const KernelCall& call, const Tasks& tasks, const Run& run) const {
    auto* scratch = workspace<std::byte>(call, scratch_ * threads_);
    const auto of_thread = [&](int64_t t) -> const auto& {
      return tasks[static_cast<size_t>(t)];
    };
    run_lists(
        threads_, [&](int64_t t) { return static_cast<int64_t>(of_thread(t).size()); },
        [&](int64_t part, int64_t t, int64_t i) {
          run(of_thread(t)[static_cast<size_t>(i)], scratch + part * scratch_);
        });
  }

  const AttentionShape shape_;
  const Implementation& implementation_;
  const uint32_t site_;
  const int threads_;
  const int64_t scratch_;  // bytes of one thread
};

class Attention final : public AttentionKernel {
 public:
  explicit Attention(const KernelSpec& spec)
      : AttentionKernel(spec), tasks_(schedule_forward(shape_, implementation_, threads_)) {}

  void run(const KernelCall& call) const override {
    Operands o = operands(call);
    o.in = head_tensors(shape_, call.in, 0);
    o.documents = documents_of(shape_, call.in, 0);
    o.y = call.out[0].data;
    o.lse = call.out[1].as<float>();
    for_each_task(call, tasks_, [&](const attention::ForwardTask& task, std::byte* scratch) {
      implementation_.forward(shape_, o, task.head, task.query_blocks, scratch);
    });
  }

 private:
  const std::vector<std::vector<attention::ForwardTask>> tasks_;
};

class AttentionGrad final : public AttentionKernel {
 public:
  explicit AttentionGrad(const KernelSpec& spec)
      : AttentionKernel(spec), tasks_(schedule_backward(shape_, implementation_, threads_)) {}

  void run(const KernelCall& call) const override {
    Operands o = operands(call);
    o.d_y = call.in[0].data;
    o.in = head_tensors(shape_, call.in, 1);
    o.documents = documents_of(shape_, call.in, 1);
    o.y = call.in[result_index(shape_)].data;
    o.lse = call.in[result_index(shape_) + 1].as<float>();
    o.gradients = head_tensors(shape_, call.out, 0);
    for_each_task(call, tasks_, [&](const attention::BackwardTask& task, std::byte* scratch) {
      implementation_.backward(shape_, o, task.kv_head, task.part, scratch);
    });
  }

 private:
  const std::vector<std::vector<attention::BackwardTask>> tasks_;
};

}  // namespace

int64_t attention_workspace_bytes(const KernelSpec& spec) {
  const AttentionShape shape = shape_of(spec);
  return spec.threads * scratch_bytes(shape, implementation_for(shape), is_grad(spec));
}

std::unique_ptr<Kernel> make_attention(const KernelSpec& spec) {
  if (is_grad(spec)) return std::make_unique<AttentionGrad>(spec);
  return std::make_unique<Attention>(spec);
}

}  // namespace dstrain
