// log_probs and its gradient: the cross-entropy of each row, negative, by each of its targets, and their gradients times the
// slopes. Minimum memory traffic: s R V bytes (s bytes per element); the gradient finds the sums again: 2 s R V.
#include <algorithm>
#include <span>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/losses/log_probs.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/losses/class_rows-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_LOG_PROBS_ONCE
#define DSTRAIN_SIMD_LOG_PROBS_ONCE
namespace dstrain::simd {
namespace {

constexpr LossTerms kPlain{0, 0, 1};

// Rows of logits, and `count` targets of each.
struct TargetRows {
  DType dtype;
  int64_t rows, width, classes, count;  // of the `width` columns, `classes` count
  const void* logits;
  const int32_t* targets;
};

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

// Computes rows [begin, end) of log_probs, or with d_y those of its gradient, which may take the place of the logits.
void log_prob_rows(const TargetRows& c, const float* d_y, void* to, int64_t begin, int64_t end) {
  with_type(c.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    for (int64_t r = begin; r < end; ++r) {
      const float slope = d_y ? -d_y[r] : 0.0f;
      const double loss =
          loss_row(static_cast<const T*>(c.logits) + r * c.width, c.classes, c.width, c.targets[r],
                   kPlain, slope, d_y ? static_cast<T*>(to) + r * c.width : nullptr);
      if (!d_y) static_cast<float*>(to)[r] = -static_cast<float>(loss);
    }
  });
}

// Writes the log-probabilities of several targets of a row.
template <class T>
SIMD_FN void log_probs_of_row(const T* x, int64_t v, std::span<const int32_t> targets, float* y) {
  const float shift = row_largest(x, v);
  const double log_total = std::log(exponential_sum(x, v, shift)), top = static_cast<double>(shift);
  for (size_t j = 0; j < targets.size(); ++j)
    y[j] =
        targets[j] < 0
            ? 0.0f
            : -static_cast<float>(log_total + (top - static_cast<double>(to_float(x[targets[j]]))));
}

// Writes the gradient of those to d, which may be x: the slopes d_y of the targets at their logits, and at all logits their sum
// times the probability, negative. Equal targets add their slopes in their order.
template <class T>
SIMD_FN void log_probs_grad_of_row(const T* x, int64_t v, std::span<const int32_t> targets,
                                   const float* d_y, T* d) {
  const float shift = row_largest(x, v);
  const double total = exponential_sum(x, v, shift);
  float sum = 0, logits[LogProbsAttrs::kMostTargets];
  for (size_t j = 0; j < targets.size(); ++j) {
    logits[j] = targets[j] < 0 ? 0.0f : to_float(x[targets[j]]);
    sum += targets[j] < 0 ? 0.0f : d_y[j];
  }
  const RowGradient g(kPlain, shift, total, -sum);
  gradient_row(x, v, -1, g, d);
  for (size_t j = 0; j < targets.size(); ++j) {
    const auto before = targets.first(j);
    if (targets[j] < 0 || std::find(before.begin(), before.end(), targets[j]) != before.end())
      continue;
    float slope = 0;
    for (size_t i = j; i < targets.size(); ++i) slope += targets[i] == targets[j] ? d_y[i] : 0.0f;
    const Pack p = exponential(all(logits[j]) - all(g.shift)) * all(g.scale);
    store(p * all(g.d_loss) + all(slope), d + targets[j], First{1});
  }
}

// The same as log_prob_rows() of several targets of a row.
void several_log_prob_rows(const TargetRows& c, const float* d_y, void* to, int64_t begin,
                           int64_t end) {
  with_type(c.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    for (int64_t r = begin; r < end; ++r) {
      const T* x = static_cast<const T*>(c.logits) + r * c.width;
      const std::span<const int32_t> targets(c.targets + r * c.count, static_cast<size_t>(c.count));
      const bool none =
          std::all_of(targets.begin(), targets.end(), [](int32_t i) { return i < 0; });
      if (!d_y) {
        float* const y = static_cast<float*>(to) + r * c.count;
        if (none)
          std::fill_n(y, c.count, 0.0f);
        else
          log_probs_of_row(x, c.classes, targets, y);
        continue;
      }
      T* const d = static_cast<T*>(to) + r * c.width;
      if (!none) log_probs_grad_of_row(x, c.classes, targets, d_y + r * c.count, d);
      for_packs(none ? 0 : c.classes, c.width,
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

// Makes the kernel of log_probs, or that of its gradient, whose operands have `d_y` in front.
std::unique_ptr<Kernel> make_log_prob_rows(const KernelSpec& spec, bool gradient) {
  const size_t first = gradient ? 1 : 0;
  const TensorSpec &logits = spec.in[first], &targets = spec.in[first + 1];
  const int64_t all = attrs_as<LogProbsAttrs>(spec.attrs).classes, r = rows(logits);
  const TargetRows shape{.dtype = logits.dtype,
                         .rows = r,
                         .width = columns(logits),
                         .classes = all > 0 ? all : columns(logits),
                         .count = r == 0 ? 1 : elements(targets) / r,
                         .logits = nullptr,
                         .targets = nullptr};
  return kernel_of([threads = spec.threads, shape, gradient, first](const KernelCall& call) {
    TargetRows c = shape;
    c.logits = data(call.in, first);
    c.targets = data<const int32_t>(call.in, first + 1);
    const float* d_y = gradient ? data<const float>(call.in, 0) : nullptr;
    parallel_ranges(threads, c.rows, row_grain(8 * c.classes), [&](int64_t begin, int64_t end) {
      if (c.count == 1)
        DSTRAIN_BEST(log_prob_rows)(c, d_y, data(call.out, 0), begin, end);
      else
        DSTRAIN_BEST(several_log_prob_rows)(c, d_y, data(call.out, 0), begin, end);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_log_probs(const KernelSpec& spec) {
  return make_log_prob_rows(spec, false);
}

std::unique_ptr<Kernel> make_log_probs_grad(const KernelSpec& spec) {
  return make_log_prob_rows(spec, true);
}

}  // namespace dstrain::simd
#endif
