// adam: AdamW (decoupled decay) or Adam with L2 regularisation, and the 16-bit copy of the weight, in one pass.
//   g = grad * grad_scale (+ weight_decay * p where decay is not decoupled)
//   m += (1 - beta1) (g - m),  v += (1 - beta2) (g^2 - v)
//   p -= lr (m / correction1 / (sqrt(v / correction2) + eps) + weight_decay p)
// Does nothing if state->skip is set. Gives the bits of kernels/cpu/memory_bound/optimizers/adam.cpp.
// One launch updates up to kMostSegments ranges of parameters: the units of a model whose gradients are ready.
// Minimum memory traffic: 28 bytes per parameter (reads g, p, m, v; writes p, m, v), 30 with the 16-bit copy; a
// 16-bit gradient saves 2.
#include <array>
#include <vector>

#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/optimizers/adam.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kN = pack_of(sizeof(float));
constexpr int kMostSegments =
    60;  // so that a list of them is within the 4096 bytes of a kernel's arguments

// A range of parameters. Packs begin where `master` is aligned: at element `first`, which is at most 0.
struct Segment {
  const void* grad;
  float *master, *m, *v;
  void* copy;  // may be null
  int64_t n;
  float weight_decay, lr_scale;
  unsigned end;  // the block behind the segment's last one
  int8_t first;
  bool aligned;  // whole packs of all operands are
};

struct Segments {
  AdamRule rule;
  int count;
  Segment list[kMostSegments];
};
static_assert(sizeof(Segments) <= 4096);

using Values = AdamValues<kN>;

// Loads whole aligned packs; those of f32 are all issued before the first is used.
template <class G>
__device__ __forceinline__ void load_aligned(const Segment& o, int64_t at, Values& x) {
  PackOf<true, float, kN> master, m, v;
  const G* const grad = static_cast<const G*>(o.grad);
  if constexpr (sizeof(G) == sizeof(float)) {
    PackOf<true, float, kN> slope;
    slope.load(grad, at);
    master.load(o.master, at);
    m.load(o.m, at);
    v.load(o.v, at);
    slope.widen_to(x.grad);
  } else {
    const auto slope = *reinterpret_cast<const Packed<G, kN>*>(grad + at);
    master.load(o.master, at);
    m.load(o.m, at);
    v.load(o.v, at);
#pragma unroll
    for (int k = 0; k < kN; ++k) x.grad[k] = widen(slope.v[k]);
  }
  master.widen_to(x.master);
  m.widen_to(x.m);
  v.widen_to(x.v);
}

// Updates elements [at, at + kN) of a segment, of which [0, n) exist.
template <class G, class T>
__device__ __forceinline__ void update_pack(const Segments& all, const Segment& o, int64_t at) {
  Values x;
  T* const copy = static_cast<T*>(o.copy);
  if (o.aligned && at >= 0 && at + kN <= o.n) {
    load_aligned<G>(o, at, x);
    update(all.rule, o.weight_decay, o.lr_scale, x);
    store_pack<true>(x.m, o.m, at, o.n);
    store_pack<true>(x.v, o.v, at, o.n);
    store_pack<true>(x.master, o.master, at, o.n);
    if (copy) store_pack<true>(x.master, copy, at, o.n);
    return;
  }
  load(static_cast<const G*>(o.grad), at, o.n, x.grad);
  load(o.master, at, o.n, x.master);
  load(o.m, at, o.n, x.m);
  load(o.v, at, o.n, x.v);
  update(all.rule, o.weight_decay, o.lr_scale, x);
  store(x.m, o.m, at, o.n);
  store(x.v, o.v, at, o.n);
  store(x.master, o.master, at, o.n);
  if (copy) store(x.master, copy, at, o.n);
}

// SASS <?*16, *>: threads 256, blocks 4, loads 3
// SASS <float, *>: threads 256, blocks 5, loads 4
template <class G, class T>
__global__ void __launch_bounds__(kFlatThreads) adam_kernel(const Segments all) {
  // The segment of this block: the first one that ends behind it.
  int low = 0, high = all.count - 1;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (blockIdx.x < all.list[middle].end)
      high = middle;
    else
      low = middle + 1;
  }
  const Segment& o = all.list[low];
  const unsigned block = blockIdx.x - (low > 0 ? all.list[low - 1].end : 0);
  if (all.rule.state->skip) return;
  const int64_t at = o.first + kN * (static_cast<int64_t>(block) * kFlatThreads + threadIdx.x);
  if (at < o.n) update_pack<G, T>(all, o, at);
}

DType copy_type(const KernelSpec& spec) {
  return present(spec.out, 3) ? spec.out[3].dtype : DType::f32;
}

// Returns whether packs of an operand that begin at element `first` are aligned.
bool aligned_from(const void* p, DType dtype, int first) {
  const auto at = reinterpret_cast<intptr_t>(p) + first * size_of(dtype);
  return p == nullptr || at % (kN * size_of(dtype)) == 0;
}

bool has_f32_masters(const KernelSpec& spec) {
  return spec.out[0].dtype == DType::f32;
}

// Whether one launch updates the ranges of both specs.
bool joins(const KernelSpec& a, const KernelSpec& b) {
  if (!has_f32_masters(a) || !has_f32_masters(b)) return false;
  auto one = attrs_as<AdamAttrs>(a.attrs), two = attrs_as<AdamAttrs>(b.attrs);
  one.weight_decay = two.weight_decay = 0;
  one.lr_scale = two.lr_scale = 1;
  return a.op == b.op && one == two && a.in[0].dtype == b.in[0].dtype &&
         copy_type(a) == copy_type(b);
}

class MultiTensorAdam final : public MultiTensorKernel {
 public:
  MultiTensorAdam(std::span<const KernelSpec> specs, const LaunchContext& context)
      : context_(context),
        attrs_(attrs_as<AdamAttrs>(specs[0].attrs)),
        grad_(specs[0].in[0].dtype),
        copy_(copy_type(specs[0])) {
    for (const KernelSpec& spec : specs) {
      const auto attrs = attrs_as<AdamAttrs>(spec.attrs);
      parts_.push_back({elements(spec.in[0]), attrs.weight_decay, attrs.lr_scale});
    }
  }

  void run(std::span<const KernelCall> calls) const override {
    Segments all{{calls[0].state, attrs_.eps, attrs_.decoupled_decay, attrs_.beside_muon}, 0, {}};
    unsigned end = 0;
    for (size_t i = 0; i < calls.size(); ++i) {
      const int64_t n = parts_[i].elements;
      if (n == 0) continue;
      auto* master = data<float>(calls[i].out, 0);
      const auto first = static_cast<int8_t>(pack_start<kN>(master));
      const int64_t packs = (n - first + kN - 1) / kN;
      end += static_cast<unsigned>((packs + kFlatThreads - 1) / kFlatThreads);
      all.list[all.count++] = {data(calls[i].in, 0),
                               master,
                               data<float>(calls[i].out, 1),
                               data<float>(calls[i].out, 2),
                               data(calls[i].out, 3),
                               n,
                               parts_[i].weight_decay,
                               parts_[i].lr_scale,
                               end,
                               first,
                               false};
      Segment& o = all.list[all.count - 1];
      o.aligned = aligned_from(o.grad, grad_, first) && aligned_from(o.m, DType::f32, first) &&
                  aligned_from(o.v, DType::f32, first) && aligned_from(o.copy, copy_, first);
    }
    if (all.count == 0) return;
    with_type(grad_, [&](auto g) {
      with_type(copy_, [&](auto t) {
        launch(context_.stream, "adam", Grid{end, kFlatThreads},
               adam_kernel<decltype(g), decltype(t)>, all);
      });
    });
  }

 private:
  struct Part {
    int64_t elements;
    float weight_decay, lr_scale;
  };
  const LaunchContext context_;
  const AdamAttrs attrs_;
  const DType grad_, copy_;
  std::vector<Part> parts_;
};

}  // namespace

std::unique_ptr<Kernel> make_adam(const KernelSpec& spec, const LaunchContext& context) {
  if (!has_f32_masters(spec)) return make_adam_of_own_masters(spec, context);
  return kernel_of([group = std::make_shared<MultiTensorAdam>(std::span(&spec, 1), context)](
                       const KernelCall& call) {
    group->run({&call, 1});
  });
}

std::unique_ptr<MultiTensorKernel> make_multi_tensor_adam(std::span<const KernelSpec> specs,
                                                          size_t& count,
                                                          const LaunchContext& context) {
  count = 1;
  while (count < std::min<size_t>(specs.size(), kMostSegments) && joins(specs[0], specs[count]))
    ++count;
  if (count == 1) return nullptr;
  return std::make_unique<MultiTensorAdam>(specs.first(count), context);
}

}  // namespace dstrain::DSTRAIN_BACKEND
