// Softmax cross-entropy and its gradient, one row at a time while the row stays in the caches: the largest
// logit, the sum of exp(x - largest), and d = (p - [i = target]) * d_loss.
// Minimum memory traffic: 2 s R V bytes (s bytes per element; s R V without the gradient).
// Where a rank has some of the classes alone, class_sums finds the first two of its own, and cross_entropy_part does the
// rest with those of all: s R V bytes, and 2 s R V. Smoothing reads the row once more, for the sum of its logits.
// log_probs is the cross-entropy of each row, negative: s R V bytes; its gradient finds the sums again: 2 s R V.
//
// A row's sum is f32 within chunks of 1024 elements and f64 over chunks. The losses of the rows are stored and
// then added in row order in f64, so the number of threads changes no bit. Those of earlier rows come first.
#include <cmath>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "runtime/ir/ops/class_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/cross_entropy.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/math-inl.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_CROSS_ENTROPY_ONCE
#define DSTRAIN_SIMD_CROSS_ENTROPY_ONCE
namespace dstrain::simd {
namespace {

// What a row's loss has besides the cross-entropy, which is all of it with 0 and 0.
struct LossTerms {
  double smoothing, z_loss;
  int64_t all_classes;  // that smoothing shares out

  // Returns the loss of a row: of `plain`, its cross-entropy, the logarithm of its sum of exponentials, the target's logit
  // and the sum of all logits.
  double loss(double plain, double log_sum, double target, double all) const {
    if (smoothing > 0) plain += smoothing * (target - all / static_cast<double>(all_classes));
    if (z_loss > 0) plain += z_loss * log_sum * log_sum;
    return plain;
  }
};

// The gradient of a row's loss with respect to logit i: (p_i * slope - everywhere - [i = target] * hit) * d_loss, where p_i
// is exp(logit - shift) times `scale`, which has the slope in it.
struct RowGradient {
  float shift, scale, everywhere, hit, d_loss;

  RowGradient(const LossTerms& terms, float largest, double total, float d)
      : shift(largest),
        scale(static_cast<float>(1.0 / total)),
        everywhere(static_cast<float>(terms.smoothing / static_cast<double>(terms.all_classes))),
        hit(static_cast<float>(1 - terms.smoothing)),
        d_loss(d) {
    if (terms.z_loss > 0)
      scale = static_cast<float>(
          (1 + 2 * terms.z_loss * (std::log(total) + static_cast<double>(largest))) / total);
  }
};

LossTerms loss_terms(const CrossEntropyAttrs& attrs, int64_t classes) {
  return {static_cast<double>(attrs.smoothing), static_cast<double>(attrs.z_loss),
          std::max<int64_t>(1, attrs.all_classes > 0 ? attrs.all_classes : classes)};
}

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

// Returns the row's largest element. A NaN may be ignored here: the sum of exponentials contains it.
template <class T>
SIMD_FN float row_largest(const T* x, int64_t v) {
  const Pack lowest = all(-HUGE_VALF);
  Pack m[2] = {lowest, lowest};
  int64_t i = 0;
  for (; i + 2 * kPack <= v; i += 2 * kPack) {
    m[0] = maximum(load(x + i), m[0]);
    m[1] = maximum(load(x + i + kPack), m[1]);
  }
  for (; i + kPack <= v; i += kPack) m[0] = maximum(load(x + i), m[0]);
  if (i < v) {  // the lanes past the end repeat the last element
    alignas(64) T tail[kPack];
    for (int k = 0; k < kPack; ++k) tail[k] = x[HWY_MIN(i + k, v - 1)];
    m[1] = maximum(load(tail), m[1]);
  }
  return largest(maximum(m[0], m[1]));
}

// Returns the sum of term(i, n) over the packs of v elements.
template <class Term>
SIMD_FN double row_sum(int64_t v, Term term) {
  constexpr int64_t kStretch = 1024;
  double total = 0;
  for (int64_t begin = 0; begin < v; begin += kStretch)
    total += static_cast<double>(
        sum(sum_packs(HWY_MIN(kStretch, v - begin),
                      [=](int64_t k, auto n) SIMD_INLINE { return term(begin + k, n); })));
  return total;
}

template <class T>
SIMD_FN double exponential_sum(const T* x, int64_t v, float shift) {
  return row_sum(
      v, [=](int64_t i, auto n) SIMD_INLINE { return exponential(load(x + i, n) - all(shift)); });
}

template <class T>
SIMD_FN double logit_sum(const T* x, int64_t v) {
  return row_sum(v, [=](int64_t i, auto n) SIMD_INLINE { return load(x + i, n); });
}

// Writes the gradient of v logits to d, which may be x. target: -1 where it is none of them.
template <class T>
SIMD_FN void gradient_row(const T* x, int64_t v, int64_t target, const RowGradient& g, T* d) {
  const float at_target = target < 0 ? 0.0f : to_float(x[target]);
  const Pack shift = all(g.shift), scale = all(g.scale), everywhere = all(g.everywhere),
             d_loss = all(g.d_loss);
  const auto difference = [=](Pack logit) SIMD_INLINE {
    return exponential(logit - shift) * scale - everywhere;
  };
  for_packs(0, v, [=](int64_t i, auto n) SIMD_INLINE {
    store(difference(load(x + i, n)) * d_loss, d + i, n);
  });
  if (target >= 0) store((difference(all(at_target)) - all(g.hit)) * d_loss, d + target, First{1});
}

// Returns the loss of a row of v logits, and writes the gradient of `width` elements to d unless d is null. d may be x.
template <class T>
SIMD_FN double loss_row(const T* x, int64_t v, int64_t width, int32_t target,
                        const LossTerms& terms, float d_loss, T* d) {
  const int64_t zeros = target < 0 ? 0 : v;  // from here on, d is 0
  if (d) for_packs(zeros, width, [=](int64_t i, auto n) SIMD_INLINE { store(all(0), d + i, n); });
  if (target < 0) return 0;
  const float shift = row_largest(x, v), hit = to_float(x[target]);
  const double total = exponential_sum(x, v, shift);
  const double logits = terms.smoothing > 0 ? logit_sum(x, v) : 0;
  if (d) gradient_row(x, v, target, RowGradient(terms, shift, total, d_loss), d);
  const double log_total = std::log(total), top = static_cast<double>(shift),
               at_target = static_cast<double>(hit);
  return terms.loss(log_total + (top - at_target), log_total + top, at_target, logits);
}

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

// Computes rows [begin, end) of log_probs, or with d_y those of its gradient, which may take the place of the logits.
void log_prob_rows(const ClassLogits& c, const float* d_y, void* to, int64_t begin, int64_t end) {
  with_type(c.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    for (int64_t r = begin; r < end; ++r) {
      const float slope = d_y ? -d_y[r] : 0.0f;
      const double loss =
          loss_row(static_cast<const T*>(c.logits) + r * c.width, c.classes, c.width, c.targets[r],
                   c.terms, slope, d_y ? static_cast<T*>(to) + r * c.width : nullptr);
      if (!d_y) static_cast<float*>(to)[r] = -static_cast<float>(loss);
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

// Makes the kernel of log_probs, or that of its gradient, whose operands have `d_y` in front.
std::unique_ptr<Kernel> make_log_prob_rows(const KernelSpec& spec, bool gradient) {
  const size_t first = gradient ? 1 : 0;
  KernelSpec of_logits = spec;
  of_logits.in = spec.in.subspan(first);
  of_logits.attrs = CrossEntropyAttrs{.classes = attrs_as<LogProbsAttrs>(spec.attrs).classes};
  return kernel_of([threads = spec.threads, shape = class_logits(of_logits), gradient,
                    first](const KernelCall& call) {
    const ClassLogits c = of_call(shape, call, first);
    const float* d_y = gradient ? data<const float>(call.in, 0) : nullptr;
    parallel_ranges(threads, c.rows, row_grain(8 * c.classes), [&](int64_t begin, int64_t end) {
      DSTRAIN_BEST(log_prob_rows)(c, d_y, data(call.out, 0), begin, end);
    });
  });
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

std::unique_ptr<Kernel> make_log_probs(const KernelSpec& spec) {
  return make_log_prob_rows(spec, false);
}

std::unique_ptr<Kernel> make_log_probs_grad(const KernelSpec& spec) {
  return make_log_prob_rows(spec, true);
}

}  // namespace dstrain::simd
#endif
