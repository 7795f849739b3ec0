// class_sums and cross_entropy_part: softmax cross-entropy of rows whose classes are divided among ranks, one block for each
// row. Every sum over a row's own classes has the order of cross_entropy, and one part with all classes its bits.
// Minimum memory traffic in bytes, s bytes per element: class_sums s R V, cross_entropy_part 2 s R V.
#include "kernels/cuda/memory_bound/memory_bound.cuh"
#include "kernels/cuda/memory_bound/softmax_rows.cuh"
#include "runtime/ir/ops/class_sums.h"

namespace dstrain::DSTRAIN_BACKEND {
namespace {

// The rows of a part of the classes: `v` logits that count, the first of class `first_class`, of `width`. A row has `sums`
// numbers: the largest logit, the sum of exp(logit - largest), the target's logit, and with smoothing the sum of the logits.
struct ClassRows {
  const int32_t* targets;
  int64_t rows, v, width, first_class, sums;
  LossTerms terms;
};

// SASS <?*16, true>: threads 512, blocks 2, loads 4
template <class T, bool kAligned>
__global__ void __launch_bounds__(kLossThreads, 2)
    class_sums_kernel(const T* logits, ClassRows classes, float* sums) {
  const int64_t r = blockIdx.x;
  const T* row = logits + r * classes.width;
  const Peak peak = peak_of_row<kAligned>(row, classes.v);
  const float all = classes.terms.smoothing > 0 ? sum_of_row(row, classes.v) : 0.0f;
  if (threadIdx.x != 0) return;
  const int64_t target = classes.targets[r] - classes.first_class;
  const bool has = classes.targets[r] >= 0 && target >= 0 && target < classes.v;
  float* const of_row = sums + r * classes.sums;
  of_row[0] = peak.top;
  of_row[1] = peak.sum;
  of_row[2] = has ? widen(row[target]) : 0.0f;
  if (classes.terms.smoothing > 0) of_row[3] = all;
}

// The loss of a row, and the gradient of its part of the logits. sums: those of class_sums of all parts. d_logits may be logits, or null; `state`
// is read only with d_logits.
// SASS <?*16, true>: threads 512, blocks 2, loads 3
template <class T, bool kAligned>
__global__ void __launch_bounds__(kLossThreads, 2)
    cross_entropy_part_kernel(const T* logits, ClassRows classes, const float* sums, int64_t parts,
                              const StepState* state, float weight, double* losses, T* d_logits) {
  const int64_t r = blockIdx.x;
  RowOfBlock<T> row{logits + r * classes.width,
                    d_logits ? d_logits + r * classes.width : nullptr,
                    classes.v,
                    classes.width,
                    classes.targets[r] - classes.first_class,
                    {},
                    {},
                    {},
                    {},
                    {}};
  if (classes.targets[r] < 0) {
    if (row.d) clear_row<kAligned>(row);
    if (threadIdx.x == 0) losses[r] = 0;
    return;
  }
  const float* const of_row = sums + r * classes.sums;
  const int64_t step = classes.rows * classes.sums;
  float top = -INFINITY, sum = 0, hit = 0;
  double all = 0;
  for (int64_t p = 0; p < parts; ++p) top = fmaxf(top, of_row[p * step]);
  const float shift = shift_of(top);
  for (int64_t p = 0; p < parts; ++p) {
    sum += of_row[p * step + 1] * shifted_exp(of_row[p * step], shift);
    hit += of_row[p * step + 2];
    if (classes.terms.smoothing > 0) all += static_cast<double>(of_row[p * step + 3]);
  }
  if (threadIdx.x == 0) losses[r] = classes.terms.loss(top, sum, hit, all);
  if (!row.d) return;
  row.set_gradient(classes.terms, top, sum, state->d_loss * weight);
  differentiate_row<kAligned>(row);
}

// Returns the rows of `spec`, without their targets.
ClassRows class_rows(const KernelSpec& spec) {
  const auto attrs = attrs_as<CrossEntropyAttrs>(spec.attrs);
  const int64_t width = columns(spec.in[0]);
  const int64_t v = attrs.classes > 0 ? attrs.classes : width;
  return {nullptr,
          rows(spec.in[0]),
          v,
          width,
          attrs.first_class,
          ops::class_sums_of(attrs),
          loss_terms(attrs, v)};
}

}  // namespace

std::unique_ptr<Kernel> make_class_sums(const KernelSpec& spec, const LaunchContext& context) {
  return kernel_of(
      [context, shape = class_rows(spec), dtype = spec.in[0].dtype](const KernelCall& call) {
        if (shape.rows == 0) return;
        ClassRows classes = shape;
        classes.targets = data<const int32_t>(call.in, 1);
        with_type(dtype, [&](auto t) {
          using T = decltype(t);
          const T* logits = data<const T>(call.in, 0);
          with_flag(whole_packs<pack_of(sizeof(T))>(shape.width, logits), [&](auto aligned) {
            launch(context.stream, "class_sums",
                   Grid{static_cast<unsigned>(shape.rows), loss_threads(shape.v)},
                   class_sums_kernel<T, decltype(aligned)::value>, logits, classes,
                   data<float>(call.out, 0));
          });
        });
      });
}

int64_t cross_entropy_part_workspace(const KernelSpec& spec) {
  if (attrs_as<CrossEntropyAttrs>(spec.attrs).by_row) return 0;
  return rows(spec.in[0]) * size_of(DType::f64);
}

std::unique_ptr<Kernel> make_cross_entropy_part(const KernelSpec& spec,
                                                const LaunchContext& context) {
  const ClassRows shape = class_rows(spec);
  const int64_t parts = elements(spec.in[2]) / std::max<int64_t>(1, shape.rows * shape.sums);
  const auto attrs = attrs_as<CrossEntropyAttrs>(spec.attrs);
  const int64_t earlier = present(spec.in, 3) ? elements(spec.in[3]) : 0;
  return kernel_of([context, shape, parts, earlier, by_row = attrs.by_row, weight = attrs.weight,
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    auto* const losses = by_row ? data<double>(call.out, 0) : workspace<double>(call, shape.rows);
    ClassRows classes = shape;
    classes.targets = data<const int32_t>(call.in, 1);
    with_type(dtype, [&](auto t) {
      using T = decltype(t);
      if (shape.rows == 0) return;
      const T* logits = data<const T>(call.in, 0);
      T* d_logits = data<T>(call.out, 1);
      with_flag(whole_packs<pack_of(sizeof(T))>(shape.width, logits, d_logits), [&](auto aligned) {
        launch(context.stream, "cross_entropy_part",
               Grid{static_cast<unsigned>(shape.rows), loss_threads(shape.v)},
               cross_entropy_part_kernel<T, decltype(aligned)::value>, logits, classes,
               data<const float>(call.in, 2), parts, call.state, weight, losses, d_logits);
      });
    });
    if (by_row) return;
    add_row_losses(context, data<const double>(call.in, 3), earlier, losses, shape.rows,
                   data<double>(call.out, 0), call.accumulate);
  });
}

}  // namespace dstrain::DSTRAIN_BACKEND
