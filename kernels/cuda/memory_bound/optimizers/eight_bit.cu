// adam_8bit and lion_8bit: the updates of adam.cuh and lion.cuh with state in 8-bit blocks
// (runtime/core/blocks/dynamic_code.h). A warp has a block, and each of its threads 8 neighbouring elements of it. Do nothing
// if state->skip is set. Give the bits of kernels/cpu/memory_bound/optimizers/eight_bit.cpp.
// Minimum memory traffic: 16 bytes per parameter (lion_8bit 14), 2 more with the 16-bit copy; a 16-bit gradient saves 2.
#include <algorithm>

#include "kernels/cuda/memory_bound/access.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/optimizers/adam.cuh"
#include "kernels/cuda/memory_bound/optimizers/lion.cuh"
#include "runtime/core/blocks/dynamic_code.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kOfThread = 8, kWarps = 8, kThreads = 32 * kWarps;
static_assert(32 * kOfThread == kStateBlock);

// Magnitudes of the code in ascending order.
struct Magnitudes {
  float of_signed[kSignedMagnitudes + 1], of_unsigned[kUnsignedMagnitudes + 1];
};

Magnitudes magnitudes() {
  Magnitudes all;
  for (int j = 0; j <= kSignedMagnitudes; ++j) all.of_signed[j] = dynamic_magnitude(true, j);
  for (int j = 0; j <= kUnsignedMagnitudes; ++j) all.of_unsigned[j] = dynamic_magnitude(false, j);
  return all;
}

// A slot of state: a code for each element, and the absmax of each block.
struct Slot {
  uint8_t* codes;
  float* absmax;
};

Slot slot_of(const KernelCall& call, size_t first) {
  return {data<uint8_t>(call.out, first), data<float>(call.out, first + 1)};
}

// Loads the codes of elements [at, at + kOfThread); those outside [0, n) are 0.
__device__ __forceinline__ void load_codes(const uint8_t* p, int64_t at, int64_t n,
                                           uint8_t (&codes)[kOfThread]) {
  if (at + kOfThread <= n && aligned<kOfThread>(p + at)) {
    const auto pack = *reinterpret_cast<const Packed<uint8_t, kOfThread>*>(p + at);
#pragma unroll
    for (int k = 0; k < kOfThread; ++k) codes[k] = pack.v[k];
    return;
  }
#pragma unroll
  for (int k = 0; k < kOfThread; ++k) codes[k] = at + k < n ? p[at + k] : uint8_t{0};
}

__device__ __forceinline__ void store_codes(const uint8_t (&codes)[kOfThread], uint8_t* p,
                                            int64_t at, int64_t n) {
  if (at + kOfThread <= n && aligned<kOfThread>(p + at)) {
    Packed<uint8_t, kOfThread> pack;
#pragma unroll
    for (int k = 0; k < kOfThread; ++k) pack.v[k] = codes[k];
    *reinterpret_cast<Packed<uint8_t, kOfThread>*>(p + at) = pack;
    return;
  }
#pragma unroll
  for (int k = 0; k < kOfThread; ++k)
    if (at + k < n) p[at + k] = codes[k];
}

// The values of a thread's elements in a slot. `magnitudes`: in shared memory.
template <bool kSigned>
__device__ __forceinline__ void unpack(const Slot& slot, const float* magnitudes, int64_t at,
                                       int64_t n, float (&x)[kOfThread]) {
  uint8_t codes[kOfThread];
  load_codes(slot.codes, at, n, codes);
  const float absmax = slot.absmax[at / kStateBlock];
#pragma unroll
  for (int k = 0; k < kOfThread; ++k) {
    float value;
    if constexpr (kSigned)
      value = codes[k] < kSignedZero ? -magnitudes[kSignedZero - codes[k]]
                                     : magnitudes[codes[k] - kSignedZero];
    else
      value = magnitudes[codes[k]];
    x[k] = at + k < n ? value * absmax : 0.0f;
  }
}

// Returns the number of the magnitude that is nearest to x.
template <int kLargest>
__device__ __forceinline__ int nearest(const float* magnitudes, float x) {
  int low = 0, high = kLargest;
  while (low < high) {
    const int middle = (low + high) / 2;
    if (x > (magnitudes[middle] + magnitudes[middle + 1]) / 2)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

// Packs the values of a warp's block. Called by all threads of the warp.
template <bool kSigned>
__device__ __forceinline__ void pack(const float (&x)[kOfThread], const float* magnitudes,
                                     int64_t at, int64_t n, const Slot& slot) {
  float absmax = 0;
#pragma unroll
  for (int k = 0; k < kOfThread; ++k) absmax = fmaxf(absmax, fabsf(x[k]));
#pragma unroll
  for (int m = 16; m > 0; m /= 2) absmax = fmaxf(absmax, __shfl_xor_sync(~0u, absmax, m));
  __syncwarp();  // orders the lanes' reads of the block's old absmax before the write: a shuffle does not
  if (threadIdx.x % 32 == 0) slot.absmax[at / kStateBlock] = absmax;
  const float divisor = absmax > 0 ? absmax : 1.0f;
  uint8_t codes[kOfThread];
#pragma unroll
  for (int k = 0; k < kOfThread; ++k) {
    const float value = x[k] / divisor;
    if constexpr (kSigned) {
      const int j = nearest<kSignedMagnitudes>(magnitudes, fabsf(value));
      const int below = kSignedZero - min(max(j, 1), kSignedMagnitudes - 1);
      codes[k] = static_cast<uint8_t>(value < 0 ? below : kSignedZero + j);
    } else {
      codes[k] = static_cast<uint8_t>(nearest<kUnsignedMagnitudes>(magnitudes, fabsf(value)));
    }
  }
  store_codes(codes, slot.codes, at, n);
}

// The weights of an update, their gradient, and what the update multiplies.
template <class G, class T>
struct Weights {
  float decay, lr_scale;
  const G* grad;
  float* master;
  T* copy;  // may be null
  int64_t n;

  __device__ void store_moved(const float (&x)[kOfThread], int64_t at) const {
    store(x, master, at, n);
    if (copy) store(x, copy, at, n);
  }
};

// Returns the first element of this thread.
__device__ __forceinline__ int64_t first_element() {
  return kOfThread * (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x);
}

__device__ __forceinline__ void copy_to_shared(const float* from, int count, float* to) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) to[i] = from[i];
}

template <class G, class T>
__global__ void __launch_bounds__(kThreads)
    adam_8bit_kernel(const AdamRule rule, const Magnitudes all, const Weights<G, T> w, const Slot m,
                     const Slot v) {
  __shared__ float of_m[kSignedMagnitudes + 1], of_v[kUnsignedMagnitudes + 1];
  copy_to_shared(all.of_signed, kSignedMagnitudes + 1, of_m);
  copy_to_shared(all.of_unsigned, kUnsignedMagnitudes + 1, of_v);
  __syncthreads();
  const int64_t at = first_element();
  if (rule.state->skip || at / kStateBlock * kStateBlock >= w.n) return;
  AdamValues<kOfThread> x;
  load(w.grad, at, w.n, x.grad);
  load(w.master, at, w.n, x.master);
  unpack<true>(m, of_m, at, w.n, x.m);
  unpack<false>(v, of_v, at, w.n, x.v);
  update(rule, w.decay, w.lr_scale, x);
  w.store_moved(x.master, at);
  pack<true>(x.m, of_m, at, w.n, m);
  pack<false>(x.v, of_v, at, w.n, v);
}

template <class G, class T>
__global__ void __launch_bounds__(kThreads)
    lion_8bit_kernel(const StepState* state, const Magnitudes all, const Weights<G, T> w,
                     const Slot m) {
  __shared__ float of_m[kSignedMagnitudes + 1];
  copy_to_shared(all.of_signed, kSignedMagnitudes + 1, of_m);
  __syncthreads();
  const int64_t at = first_element();
  if (state->skip || at / kStateBlock * kStateBlock >= w.n) return;
  float grad[kOfThread], master[kOfThread], moving[kOfThread];
  load(w.grad, at, w.n, grad);
  load(w.master, at, w.n, master);
  unpack<true>(m, of_m, at, w.n, moving);
  update_lion(*state, w.decay, w.lr_scale, grad, master, moving);
  w.store_moved(master, at);
  pack<true>(moving, of_m, at, w.n, m);
}

// Calls f(weights) with the operands of a call, in their types. `copy`: the number of the output that is the 16-bit copy.
template <class F>
void with_weights(const KernelCall& call, DType grad, DType param, size_t copy, int64_t n,
                  float decay, float lr_scale, const F& f) {
  with_type(grad, [&](auto g) {
    with_type(param, [&](auto t) {
      using G = decltype(g);
      using T = decltype(t);
      f(Weights<G, T>{decay, lr_scale, data<const G>(call.in, 0), data<float>(call.out, 0),
                      data<T>(call.out, copy), n});
    });
  });
}

Grid grid_of(int64_t n) {
  constexpr int64_t kOfGrid = int64_t{kOfThread} * kThreads;
  return {static_cast<unsigned>((n + kOfGrid - 1) / kOfGrid), kThreads};
}

DType copy_type_of(const KernelSpec& spec, size_t copy) {
  return present(spec.out, copy) ? spec.out[copy].dtype : DType::f32;
}

}  // namespace

std::unique_ptr<Kernel> make_adam_8bit(const KernelSpec& spec, const LaunchContext& context) {
  constexpr size_t kCopy = 5;
  return kernel_of([context, n = elements(spec.in[0]), a = attrs_as<AdamAttrs>(spec.attrs),
                    grad = spec.in[0].dtype, param = copy_type_of(spec, kCopy),
                    all = magnitudes()](const KernelCall& call) {
    if (n == 0) return;
    with_weights(call, grad, param, kCopy, n, a.weight_decay, a.lr_scale,
                 [&]<class G, class T>(const Weights<G, T>& w) {
                   const AdamRule rule{call.state, a.eps, a.decoupled_decay, a.beside_muon};
                   launch(context.stream, "adam_8bit", grid_of(n), adam_8bit_kernel<G, T>, rule,
                          all, w, slot_of(call, 1), slot_of(call, 3));
                 });
  });
}

std::unique_ptr<Kernel> make_lion_8bit(const KernelSpec& spec, const LaunchContext& context) {
  constexpr size_t kCopy = 3;
  return kernel_of([context, n = elements(spec.in[0]), a = attrs_as<LionAttrs>(spec.attrs),
                    grad = spec.in[0].dtype, param = copy_type_of(spec, kCopy),
                    all = magnitudes()](const KernelCall& call) {
    if (n == 0) return;
    with_weights(call, grad, param, kCopy, n, a.weight_decay, a.lr_scale,
                 [&]<class G, class T>(const Weights<G, T>& w) {
                   launch(context.stream, "lion_8bit", grid_of(n), lion_8bit_kernel<G, T>,
                          call.state, all, w, slot_of(call, 1));
                 });
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
