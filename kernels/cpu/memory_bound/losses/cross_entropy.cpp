// Softmax cross-entropy and its gradient, one row at a time while the row stays in the caches: the largest
// logit, the sum of exp(x - largest), and d = (p - [i = target]) * d_loss.
// Minimum memory traffic: 2 s R V bytes (s bytes per element; s R V without the gradient).
// Where a rank has some of the classes alone, class_sums finds the first two of its own, and cross_entropy_part does the
// rest with those of all: s R V bytes, and 2 s R V. Smoothing reads the row once more, for the sum of its logits.
//
// The losses of the rows are stored and then added in row order in f64, so the number of threads changes no bit. Those of earlier
// rows come first.
#include <cmath>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "runtime/ir/ops/class_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/losses/cross_entropy.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/losses/class_rows-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_CROSS_ENTROPY_ONCE
#define DSTRAIN_SIMD_CROSS_ENTROPY_ONCE
namespace dstrain::simd {
namespace {

// The logits of some of the classes, and the targets of their rows.
struct ClassLogits {
  DType dtype;
  int64_t rows, width, classes, first_class;  // of the `width` columns, `classes` count
  const void* logits;
  const int32_t* targets;
  LossTerms terms;
  int64_t row_sums;  // numbers of a row of class_sums

  // Returns the column of a row's target, -1 where it is no class of these.
  int64_t target_column(int64_t row) const {
    const int64_t column = targets[row] - first_class;
    return targets[row] >= 0 && 0 <= column && column < classes ? column : -1;
  }
};

// What the softmax of one row needs of all classes.
struct RowSums {
  float largest;
  double total;   // of exp(logit - largest)
  double target;  // the target's logit
  double logits;  // their sum, where there is smoothing

  // sums: those of row 0 of each of `parts` parts, which are `stride` elements apart.
  RowSums(const float* sums, int64_t parts, int64_t stride, bool smoothed)
      : largest(sums[0]), total(0), target(0), logits(0) {
    for (int64_t p = 1; p < parts; ++p) largest = std::max(largest, sums[p * stride]);
    for (int64_t p = 0; p < parts; ++p) {
      const float* part = sums + p * stride;
      total += static_cast<double>(part[1]) *
               std::exp(static_cast<double>(part[0]) - static_cast<double>(largest));
      target += static_cast<double>(part[2]);
      if (smoothed) logits += static_cast<double>(part[3]);
    }
  }
  double loss(const LossTerms& terms) const {
    const double top = static_cast<double>(largest), log_total = std::log(total);
    return terms.loss(log_total + (top - target), log_total + top, target, logits);
  }
};

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

void cross_entropy_rows(DType dtype, int64_t v, int64_t width, const void* logits,
                        const int32_t* targets, const LossTerms& terms, float d_loss,
                        double* losses, void* d_logits, int64_t begin, int64_t end) {
  with_type(dtype, [=, &terms](auto t) SIMD_INLINE {
    using T = decltype(t);
    for (int64_t r = begin; r < end; ++r)
      losses[r] = loss_row(static_cast<const T*>(logits) + r * width, v, width, targets[r], terms,
                           d_loss, d_logits ? static_cast<T*>(d_logits) + r * width : nullptr);
  });
}

// Computes rows [begin, end) of the sums of class_sums.
void class_sum_rows(const ClassLogits& c, float* sums, int64_t begin, int64_t end) {
  with_type(c.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    for (int64_t r = begin; r < end; ++r) {
      const T* x = static_cast<const T*>(c.logits) + r * c.width;
      const int64_t target = c.target_column(r);
      const float largest = row_largest(x, c.classes);
      // Where all are -infinity, other parts may have larger ones: the sum is 0 here, and NaN if one is NaN.
      const float shift = largest == -HUGE_VALF ? 0.0f : largest;
      float* to = sums + r * c.row_sums;
      to[0] = largest;
      to[1] = static_cast<float>(exponential_sum(x, c.classes, shift));
      to[2] = target < 0 ? 0.0f : to_float(x[target]);
      if (c.terms.smoothing > 0) to[3] = static_cast<float>(logit_sum(x, c.classes));
    }
  });
}

// Computes the losses of rows [begin, end) and the rows of their gradient, unless it is null, from `parts` parts of sums.
void cross_entropy_part_rows(const ClassLogits& c, const float* sums, int64_t parts, float d_loss,
                             double* losses, void* d_logits, int64_t begin, int64_t end) {
  with_type(c.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    for (int64_t r = begin; r < end; ++r) {
      const bool counts = c.targets[r] >= 0;
      const RowSums all_classes(sums + r * c.row_sums, parts, c.rows * c.row_sums,
                                c.terms.smoothing > 0);
      losses[r] = counts ? all_classes.loss(c.terms) : 0;
      if (!d_logits) continue;
      const T* x = static_cast<const T*>(c.logits) + r * c.width;
      T* d = static_cast<T*>(d_logits) + r * c.width;
      if (counts)
        gradient_row(x, c.classes, c.target_column(r),
                     RowGradient(c.terms, all_classes.largest, all_classes.total, d_loss), d);
      for_packs(counts ? c.classes : 0, c.width,
                [=](int64_t i, auto n) SIMD_INLINE { store(all(0), d + i, n); });
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {
namespace {

// Writes, or with `accumulate` adds, the sum of the `earlier` losses at `before` and then of the losses of `rows` rows,
// times a factor.
void sum_losses(const double* before, int64_t earlier, const double* losses, int64_t rows,
                bool accumulate, double* loss, float factor = 1) {
  double total = 0;
  for (int64_t i = 0; i < earlier; ++i) total += before[i];
  for (int64_t i = 0; i < rows; ++i) total += losses[i];
  total *= static_cast<double>(factor);
  *loss = accumulate ? *loss + total : total;
}

// The logits and targets of class_sums and cross_entropy_part, without their addresses.
ClassLogits class_logits(const KernelSpec& spec) {
  const auto attrs = attrs_as<CrossEntropyAttrs>(spec.attrs);
  const int64_t width = columns(spec.in[0]);
  const int64_t classes = attrs.classes > 0 ? attrs.classes : width;
  return {.dtype = spec.in[0].dtype,
          .rows = rows(spec.in[0]),
          .width = width,
          .classes = classes,
          .first_class = attrs.first_class,
          .logits = nullptr,
          .targets = nullptr,
          .terms = loss_terms(attrs, classes),
          .row_sums = ops::class_sums_of(attrs)};
}

// The same with those of a call. first: which of its operands are the logits, in front of the targets.
ClassLogits of_call(ClassLogits c, const KernelCall& call, size_t first = 0) {
  c.logits = data(call.in, first);
  c.targets = data<const int32_t>(call.in, first + 1);
  return c;
}

}  // namespace

int64_t cross_entropy_workspace(const KernelSpec& spec) {
  if (attrs_as<CrossEntropyAttrs>(spec.attrs).by_row) return 0;
  return rows(spec.in[0]) * size_of(DType::f64);
}

std::unique_ptr<Kernel> make_cross_entropy(const KernelSpec& spec) {
  const int64_t width = columns(spec.in[0]);
  const auto attrs = attrs_as<CrossEntropyAttrs>(spec.attrs);
  const int64_t v = attrs.classes > 0 ? attrs.classes : width;
  return kernel_of([threads = spec.threads, r = rows(spec.in[0]), width, v, by_row = attrs.by_row,
                    terms = loss_terms(attrs, v), weight = attrs.weight,
                    earlier = present(spec.in, 2) ? elements(spec.in[2]) : 0,
                    dtype = spec.in[0].dtype](const KernelCall& call) {
    auto* losses = by_row ? data<double>(call.out, 0) : workspace<double>(call, r);
    void* d_logits = data(call.out, 1);
    const auto* given = data<const float>(call.in, 3);
    const float factor = given ? *given : 1.0f;
    const float d_loss = d_logits ? call.state->d_loss * weight * factor : 0.0f;
    parallel_ranges(threads, r, row_grain(8 * v), [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(cross_entropy_rows)
      (dtype, v, width, data(call.in, 0), data<const int32_t>(call.in, 1), terms, d_loss, losses,
       d_logits, begin, end);
    });
    if (by_row) return;
    sum_losses(data<const double>(call.in, 2), earlier, losses, r, call.accumulate,
               data<double>(call.out, 0), factor);
  });
}

std::unique_ptr<Kernel> make_class_sums(const KernelSpec& spec) {
  return kernel_of([threads = spec.threads, shape = class_logits(spec)](const KernelCall& call) {
    const ClassLogits c = of_call(shape, call);
    parallel_ranges(threads, c.rows, row_grain(8 * c.classes), [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(class_sum_rows)(c, data<float>(call.out, 0), begin, end);
    });
  });
}

int64_t cross_entropy_part_workspace(const KernelSpec& spec) {
  if (attrs_as<CrossEntropyAttrs>(spec.attrs).by_row) return 0;
  return rows(spec.in[0]) * size_of(DType::f64);
}

std::unique_ptr<Kernel> make_cross_entropy_part(const KernelSpec& spec) {
  return kernel_of(
      [threads = spec.threads, shape = class_logits(spec),
       parts = elements(spec.in[2]) /
               (rows(spec.in[0]) * ops::class_sums_of(attrs_as<CrossEntropyAttrs>(spec.attrs))),
       by_row = attrs_as<CrossEntropyAttrs>(spec.attrs).by_row,
       earlier = present(spec.in, 3) ? elements(spec.in[3]) : 0,
       weight = attrs_as<CrossEntropyAttrs>(spec.attrs).weight](const KernelCall& call) {
        const ClassLogits c = of_call(shape, call);
        auto* losses = by_row ? data<double>(call.out, 0) : workspace<double>(call, c.rows);
        void* d_logits = data(call.out, 1);
        const float d_loss = d_logits ? call.state->d_loss * weight : 0.0f;
        parallel_ranges(threads, c.rows, row_grain(8 * c.classes), [&](int64_t begin, int64_t end) {
          DSTRAIN_BEST(cross_entropy_part_rows)
          (c, data<const float>(call.in, 2), parts, d_loss, losses, d_logits, begin, end);
        });
        if (by_row) return;
        sum_losses(data<const double>(call.in, 3), earlier, losses, c.rows, call.accumulate,
                   data<double>(call.out, 0));
      });
}

}  // namespace dstrain::simd
#endif
