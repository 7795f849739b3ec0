// add_layer_norm: sum = x + dropout(h), and the layer_norm of the rounded sum, which stays in registers between them.
// Minimum memory traffic: 4 s R C bytes, where add_dropout and layer_norm by themselves move 5 s R C.
#include "kernels/cuda/memory_bound/dropout.cuh"
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/rows.cuh"
#include "kernels/joined.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

struct AddNorm {
  const void *x, *h, *weight, *bias;
  void *sum, *y;
  float *mean, *rstd;
  DropoutRule rule;
  uint32_t site;
  unsigned seq_len, first_row;
  const StepState* state;
  int64_t sample_offset;
  float eps;
};

// The operations are those of dropout_kernel and layer_norm_kernel in their order, so the bits are theirs.
// SASS <?*16, *>: threads 128, blocks 6, loads 8
template <class T, bool kDrops>
__global__ void __launch_bounds__(kRowThreads, 1)
    add_layer_norm_kernel(AddNorm o, int64_t rows, int64_t c) {
  static_assert(kDrawn == kRowPack);
  const int64_t r = row_of_group();
  if (r >= rows) return;
  RowPack<true, T> hs[kHeldPacks], xs[kHeldPacks];
  load_row<kHeldPacks>(hs, static_cast<const T*>(o.h) + r * c, c);
  load_row<kHeldPacks>(xs, static_cast<const T*>(o.x) + r * c, c);
  PhiloxKey key{};
  uint64_t sample = 0, first_block = 0;
  if constexpr (kDrops) {
    key = stream_key(o.state->seed, kDropoutStream + o.site);
    const unsigned row = o.first_row + static_cast<unsigned>(r);  // of the micro-batch
    sample = static_cast<uint64_t>(o.state->first_sample + o.sample_offset) + row / o.seq_len;
    first_block = static_cast<uint64_t>(row % o.seq_len) * static_cast<uint64_t>(c / kDrawn);
  }
  const float inverse = 1.0f / static_cast<float>(c);
  Packed<T, kRowPack> sums[kHeldPacks];
  float total = 0;
  for_row_packs<kHeldPacks>(c, [&](int k, int64_t at) {
    float v[kRowPack], residual[kRowPack];
    hs[k].widen_to(v);
    xs[k].widen_to(residual);
    if constexpr (kDrops)
      drop(v, o.rule.threshold, key, sample, first_block + static_cast<uint64_t>(at / kDrawn));
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) {
      sums[k].v[e] = narrow<T>(fmaf(v[e], o.rule.scale, residual[e]));
      total += widen(sums[k].v[e]);
    }
    store_whole(reinterpret_cast<Packed<T, kRowPack>*>(static_cast<T*>(o.sum) + r * c + at),
                sums[k]);
  });
  const float centre = group_sum(total) * inverse;
  float square = 0;
  for_row_packs<kHeldPacks>(c, [&](int k, int64_t) {
#pragma unroll
    for (int e = 0; e < kRowPack; ++e) {
      const float d = widen(sums[k].v[e]) - centre;
      square = fmaf(d, d, square);
    }
  });
  const float scale = 1.0f / sqrtf(group_sum(square) * inverse + o.eps);
  for_row_packs<kHeldPacks>(c, [&](int k, int64_t at) {
    RowPack<true, T> w, b;
    w.load(static_cast<const T*>(o.weight), at);
    b.load(static_cast<const T*>(o.bias), at);
    float v[kRowPack], scales[kRowPack], shifts[kRowPack];
    w.widen_to(scales);
    b.widen_to(shifts);
#pragma unroll
    for (int e = 0; e < kRowPack; ++e)
      v[e] = fmaf((widen(sums[k].v[e]) - centre) * scale, scales[e], shifts[e]);
    store_pack<true>(v, static_cast<T*>(o.y) + r * c, at, c);
  });
  if (threadIdx.x == 0) {
    o.mean[r] = centre;
    o.rstd[r] = scale;
  }
}

// What the kernel takes: whole packs of 16-bit elements, and rows that their threads hold.
bool in_one_pass(DType dtype, int64_t rows, int64_t c) {
  return size_of(dtype) == 2 && c % kRowPack == 0 && RowShape(rows, c).held;
}

}  // namespace

bool add_layer_norm_fuses(const KernelSpec& spec) {
  return in_one_pass(spec.in[0].dtype, rows(spec.in[0]), columns(spec.in[0]));
}

std::unique_ptr<Kernel> make_add_layer_norm(const KernelSpec& spec, const LaunchContext& context) {
  const auto attrs = attrs_as<AddLayerNormAttrs>(spec.attrs);
  std::shared_ptr<Kernel> two =
      make_joined(spec, [&](const KernelSpec& part) { return make_memory_bound(part, context); });
  const int64_t r = rows(spec.in[0]), c = columns(spec.in[0]);
  return kernel_of([context, attrs, two, r, c, shape = RowShape(r, c),
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    const AddNorm o{data(call.in, 0),
                    data(call.in, 1),
                    data(call.in, 2),
                    data(call.in, 3),
                    data(call.out, 0),
                    data(call.out, 1),
                    data<float>(call.out, 2),
                    data<float>(call.out, 3),
                    DropoutRule(attrs.add.dropout),
                    attrs.add.site,
                    static_cast<unsigned>(attrs.add.seq_len),
                    static_cast<unsigned>(attrs.add.part.first),
                    call.state,
                    call.sample_offset,
                    attrs.norm.eps};
    const auto run = [&](auto t) {
      using T = decltype(t);
      const auto of = [](const void* p) { return static_cast<const T*>(p); };
      if (r == 0 ||
          !whole_packs<kRowPack>(c, of(o.x), of(o.h), of(o.weight), of(o.bias), of(o.sum), of(o.y)))
        return two->run(call);
      with_flag(o.rule.threshold != 0, [&](auto drops) {
        launch(context.stream, "add_layer_norm", shape.grid,
               add_layer_norm_kernel<T, decltype(drops)::value>, o, r, c);
      });
    };
    if (!in_one_pass(dtype, r, c))
      two->run(call);
    else if (dtype == DType::bf16)
      run(bf16{});
    else
      run(f16{});
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
