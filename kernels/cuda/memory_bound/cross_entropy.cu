// Softmax cross-entropy and its gradient, one block for each row: the largest logit and the sum of
// exp(x - largest) in one pass, then d = (p - [i = target]) * d_loss, for which the row is read again from the L2
// cache. Minimum memory traffic: 2 s R V bytes (s R V without the gradient); no logits are written in f32.
//
// A row has v logits and may be wider; the gradient of the rest is 0.
//
// A thread adds in f32, about 100 elements with V = 50257. The losses of the rows are stored, and added in f64 by
// 256 threads and then as a tree. Those of earlier rows come first, as if all were rows of one operand.
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/softmax_rows.cuh"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

constexpr int kChains = 256;

// The loss of a row, and its gradient. d_logits may be logits, or null; `state` is read only with d_logits. factor: null, or
// what multiplies both.
// SASS <?*16, true>: threads 512, blocks 2, loads 4
template <class T, bool kAligned>
__global__ void __launch_bounds__(kLossThreads, 2)
    cross_entropy_kernel(const T* logits, const int32_t* targets, int64_t v, int64_t width,
                         LossTerms terms, const StepState* state, float weight, const float* factor,
                         double* losses, T* d_logits) {
  const int64_t r = blockIdx.x;
  RowOfBlock<T> row{logits + r * width,
                    d_logits ? d_logits + r * width : nullptr,
                    v,
                    width,
                    targets[r],
                    {},
                    {},
                    {},
                    {},
                    {}};
  if (row.target < 0) {
    if (row.d) clear_row<kAligned>(row);
    if (threadIdx.x == 0) losses[r] = 0;
    return;
  }
  const float hit = widen(row.x[row.target]);
  const Peak peak = peak_of_row<kAligned>(row.x, v);
  const float all = terms.smoothing > 0 ? sum_of_row(row.x, v) : 0.0f;
  const float times = factor ? *factor : 1.0f;
  if (threadIdx.x == 0)
    losses[r] =
        terms.loss(peak.top, peak.sum, hit, static_cast<double>(all)) * static_cast<double>(times);
  if (!row.d) return;
  row.set_gradient(terms, peak.top, peak.sum, state->d_loss * weight * times);
  differentiate_row<kAligned>(row);
}

__global__ void __launch_bounds__(kChains)
    add_losses(const double* before, int64_t earlier, const double* losses, int64_t rows,
               double* loss, bool add) {
  __shared__ double chain[kChains];
  double mine = 0;
  for (int64_t r = threadIdx.x; r < earlier + rows; r += kChains)
    mine += r < earlier ? before[r] : losses[r - earlier];
  chain[threadIdx.x] = mine;
  for (unsigned half = kChains / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.x < half) chain[threadIdx.x] += chain[threadIdx.x + half];
  }
  if (threadIdx.x == 0) *loss = add ? *loss + chain[0] : chain[0];
}

}  // namespace

void add_row_losses(const LaunchContext& context, const double* before, int64_t earlier,
                    const double* losses, int64_t rows, double* loss, bool add) {
  launch(context.stream, "cross_entropy (sum)", Grid{1, kChains}, add_losses, before, earlier,
         losses, rows, loss, add);
}

int64_t cross_entropy_workspace(const KernelSpec& spec) {
  if (attrs_as<CrossEntropyAttrs>(spec.attrs).by_row) return 0;
  return rows(spec.in[0]) * size_of(DType::f64);
}

std::unique_ptr<Kernel> make_cross_entropy(const KernelSpec& spec, const LaunchContext& context) {
  const int64_t r = rows(spec.in[0]), width = columns(spec.in[0]);
  const auto attrs = attrs_as<CrossEntropyAttrs>(spec.attrs);
  const int64_t v = attrs.classes > 0 ? attrs.classes : width;
  const int64_t earlier = present(spec.in, 2) ? elements(spec.in[2]) : 0;
  return kernel_of([context, r, v, width, earlier, by_row = attrs.by_row,
                    terms = loss_terms(attrs, v), weight = attrs.weight,
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    auto* losses = by_row ? data<double>(call.out, 0) : workspace<double>(call, r);
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      if (r == 0) return;
      const T* logits = data<const T>(call.in, 0);
      T* d_logits = data<T>(call.out, 1);
      with_flag(whole_packs<pack_of(sizeof(T))>(width, logits, d_logits), [&](auto aligned) {
        launch(context.stream, "cross_entropy", Grid{static_cast<unsigned>(r), loss_threads(v)},
               cross_entropy_kernel<T, decltype(aligned)::value>, logits,
               data<const int32_t>(call.in, 1), v, width, terms, call.state, weight,
               data<const float>(call.in, 3), losses, d_logits);
      });
    });
    if (by_row) return;
    add_row_losses(context, data<const double>(call.in, 2), earlier, losses, r,
                   data<double>(call.out, 0), call.accumulate);
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
