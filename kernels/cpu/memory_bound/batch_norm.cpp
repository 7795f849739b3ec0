// batch_norm and its gradient. Minimum memory traffic in bytes: batch_norm 3 s R C, with a residual 4; batch_norm_grad 5 s R C, with
// relu 7. The mean of a block of rows is computed first, and what they deviate from it next, so that no digits cancel.
#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/cpu/memory_bound/kernels.h"
#include "kernels/cpu/memory_bound/parallel.h"
#include "runtime/ir/op.h"
#include "runtime/ir/ops/row_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/memory_bound/batch_norm.cpp"
#include "hwy/foreach_target.h"
#include "kernels/cpu/memory_bound/pack-inl.h"
#include "runtime/core/isa/best_variant.h"

#ifndef DSTRAIN_SIMD_BATCH_NORM_ONCE
#define DSTRAIN_SIMD_BATCH_NORM_ONCE
namespace dstrain::simd {
namespace {

// Operands of rows; null: absent. The others have a value for each column.
struct NormRows {
  DType dtype{};
  int64_t columns = 0;
  bool relu = false;
  const void *x = nullptr, *residual = nullptr, *d_y = nullptr, *y = nullptr;
  void *result = nullptr, *d_residual = nullptr;
  const float *mean = nullptr, *scale = nullptr, *shift = nullptr, *slope = nullptr;
};

}  // namespace
}  // namespace dstrain::simd
#endif

HWY_BEFORE_NAMESPACE();
namespace dstrain::simd {
namespace HWY_NAMESPACE {
namespace {

template <class T>
SIMD_FN const T* at(const void* rows, int64_t i) {
  return rows ? static_cast<const T*>(rows) + i : nullptr;
}

// Writes the means of rows [begin, end) to sums, and behind them the sums of squares of what deviates from these.
void sum_moments(const NormRows& o, int64_t begin, int64_t end, float* sums) {
  with_type(o.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    const int64_t c = o.columns;
    const float part = 1.0f / static_cast<float>(end - begin);
    for_packs(0, c, [&](int64_t i, auto n) SIMD_INLINE {
      const T* const x = at<T>(o.x, i);
      Pack sum = all(0), squares = all(0);
      for (int64_t r = begin; r < end; ++r) sum = sum + load(x + r * c, n);
      const Pack mean = sum * all(part);
      for (int64_t r = begin; r < end; ++r) {
        const Pack apart = load(x + r * c, n) - mean;
        squares = fma(apart, apart, squares);
      }
      store(mean, sums + i, n);
      store(squares, sums + c + i, n);
    });
  });
}

// y = act((x - mean) * scale + shift + residual)
void norm_rows(const NormRows& o, int64_t begin, int64_t end) {
  with_type(o.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    const int64_t c = o.columns;
    for (int64_t r = begin; r < end; ++r) {
      const T *x = at<T>(o.x, r * c), *residual = at<T>(o.residual, r * c);
      T* const y = static_cast<T*>(o.result) + r * c;
      for_packs(0, c, [=, &o](int64_t i, auto n) SIMD_INLINE {
        Pack v =
            fma(load(x + i, n) - load(o.mean + i, n), load(o.scale + i, n), load(o.shift + i, n));
        if (residual) v = v + load(residual + i, n);
        // NaN stays.
        if (o.relu) v = select(less(v, all(0)), all(0), v);
        store(v, y + i, n);
      });
    }
  });
}

// Returns the gradient of what is behind the act.
template <class T, class Lanes>
SIMD_FN Pack before_act(const NormRows& o, int64_t element, Lanes n) {
  const Pack d_y = load(at<T>(o.d_y, element), n);
  return o.relu ? select_or_zero(greater(load(at<T>(o.y, element), n), all(0)), d_y) : d_y;
}

// Writes the sums over rows [begin, end) of the gradient g before the act to sums, and behind them those of g * (x - mean).
void sum_gradients(const NormRows& o, int64_t begin, int64_t end, float* sums) {
  with_type(o.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    const int64_t c = o.columns;
    for_packs(0, c, [&](int64_t i, auto n) SIMD_INLINE {
      const Pack mean = load(o.mean + i, n);
      Pack plain = all(0), apart = all(0);
      for (int64_t r = begin; r < end; ++r) {
        const Pack g = before_act<T>(o, r * c + i, n);
        if (o.d_residual) store(g, static_cast<T*>(o.d_residual) + r * c + i, n);
        plain = plain + g;
        apart = fma(g, load(at<T>(o.x, r * c + i), n) - mean, apart);
      }
      store(plain, sums + i, n);
      store(apart, sums + c + i, n);
    });
  });
}

// d_x = scale * (g - shift - (x - mean) * slope)
void grad_rows(const NormRows& o, int64_t begin, int64_t end) {
  with_type(o.dtype, [&](auto t) SIMD_INLINE {
    using T = decltype(t);
    const int64_t c = o.columns;
    for (int64_t r = begin; r < end; ++r)
      for_packs(0, c, [=, &o](int64_t i, auto n) SIMD_INLINE {
        const Pack apart = load(at<T>(o.x, r * c + i), n) - load(o.mean + i, n);
        const Pack g = before_act<T>(o, r * c + i, n) - load(o.shift + i, n);
        store(fnma(apart, load(o.slope + i, n), g) * load(o.scale + i, n),
              static_cast<T*>(o.result) + r * c + i, n);
      });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace dstrain::simd
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace dstrain::simd {
namespace {

// Returns the blocks of rows whose sums are added in order: the elements of one stay in the first-level cache.
RowBlocks blocks_of(int64_t rows, int64_t columns) {
  return {rows, std::clamp<int64_t>(8192 / columns, 8, 128)};
}

// What both kernels have alike.
class BatchNorm {
 public:
  BatchNorm(const KernelSpec& spec, size_t x)
      : attrs_(attrs_as<BatchNormAttrs>(spec.attrs)),
        dtype_(spec.in[x].dtype),
        columns_(columns(spec.in[x])),
        rows_(rows(spec.in[x])),
        blocks_(blocks_of(rows_, columns_)),
        threads_(spec.threads) {}

  // Two sums of each column and block, and four values of each column.
  int64_t workspace_bytes() const { return (2 * blocks_.count + 4) * columns_ * 4; }

 protected:
  NormRows rows_of(const void* x) const {
    return {.dtype = dtype_, .columns = columns_, .relu = attrs_.relu, .x = x};
  }
  double rows_in_all() const { return static_cast<double>(rows_); }

  // Calls sum(begin, end, sums) for the rows of each block.
  template <class Sum>
  void sum_blocks_of(float* sums, const Sum& sum) const {
    const int64_t grain = row_grain(blocks_.block * columns_ * size_of(dtype_));
    parallel_ranges(threads_, blocks_.count, grain, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b)
        sum(blocks_.begin(b), blocks_.end(b), sums + 2 * b * columns_);
    });
  }
  template <class Run>
  void for_rows(const Run& run) const {
    parallel_ranges(threads_, rows_, row_grain(columns_ * size_of(dtype_)), run);
  }
  float value(const Tensor& operand, int64_t i) const {
    switch (dtype_) {
      case DType::bf16:
        return to_float(operand.as<const bf16>()[i]);
      case DType::f16:
        return to_float(operand.as<const f16>()[i]);
      default:
        return operand.as<const float>()[i];
    }
  }

  BatchNormAttrs attrs_;
  DType dtype_;
  int64_t columns_;
  int64_t rows_;
  RowBlocks blocks_;
  int threads_;
};

class Forward final : public Kernel, public BatchNorm {
 public:
  explicit Forward(const KernelSpec& spec) : BatchNorm(spec, 0) {}

  void run(const KernelCall& call) const override {
    auto* const sums = workspace<float>(call, workspace_bytes() / 4);
    float* const scale = sums + 2 * blocks_.count * columns_;
    float* const shift = scale + columns_;
    auto* const mean = call.out[1].as<float>();
    auto* const variance = call.out[2].as<float>();
    NormRows o = rows_of(data(call.in, 0));
    sum_blocks_of(sums, [&](int64_t begin, int64_t end, float* of_block) {
      DSTRAIN_BEST(sum_moments)(o, begin, end, of_block);
    });
    for (int64_t c = 0; c < columns_; ++c) {
      add_moments(sums + c, mean[c], variance[c]);
      scale[c] = static_cast<float>(
          static_cast<double>(value(call.in[1], c)) /
          std::sqrt(static_cast<double>(variance[c]) + static_cast<double>(attrs_.eps)));
      shift[c] = value(call.in[2], c);
    }
    o.residual = data(call.in, 3);
    o.result = data(call.out, 0);
    o.mean = mean;
    o.scale = scale;
    o.shift = shift;
    for_rows([&](int64_t begin, int64_t end) { DSTRAIN_BEST(norm_rows)(o, begin, end); });
  }

 private:
  // Adds up the moments of a column's blocks (Chan, Golub and LeVeque, 1979).
  void add_moments(const float* sums, float& mean, float& variance) const {
    double centre = 0, squares = 0, n = 0;
    for (int64_t b = 0; b < blocks_.count; ++b, sums += 2 * columns_) {
      const auto more = static_cast<double>(blocks_.end(b) - blocks_.begin(b));
      const double apart = static_cast<double>(*sums) - centre;
      centre += apart * more / (n + more);
      squares += static_cast<double>(sums[columns_]) + apart * apart * n * more / (n + more);
      n += more;
    }
    mean = static_cast<float>(centre);
    variance = static_cast<float>(squares / n);
  }
};

class Backward final : public Kernel, public BatchNorm {
 public:
  explicit Backward(const KernelSpec& spec) : BatchNorm(spec, 1) {}

  void run(const KernelCall& call) const override {
    auto* const sums = workspace<float>(call, workspace_bytes() / 4);
    float* const scale = sums + 2 * blocks_.count * columns_;
    float *const shift = scale + columns_, *const slope = shift + columns_;
    NormRows o = rows_of(data(call.in, 1));
    o.d_y = data(call.in, 0);
    o.y = data(call.in, 5);
    o.mean = call.in[3].as<const float>();
    o.d_residual = data(call.out, 3);
    sum_blocks_of(sums, [&](int64_t begin, int64_t end, float* of_block) {
      DSTRAIN_BEST(sum_gradients)(o, begin, end, of_block);
    });
    for (int64_t c = 0; c < columns_; ++c) {
      const double inverse = 1 / std::sqrt(static_cast<double>(call.in[4].as<const float>()[c]) +
                                           static_cast<double>(attrs_.eps));
      const auto [plain, apart] = totals(sums + c);
      call.out[1].as<float>()[c] = static_cast<float>(apart * inverse);
      call.out[2].as<float>()[c] = static_cast<float>(plain);
      scale[c] = static_cast<float>(static_cast<double>(value(call.in[2], c)) * inverse);
      shift[c] = static_cast<float>(plain / rows_in_all());
      slope[c] = static_cast<float>(apart * inverse * inverse / rows_in_all());
    }
    o.scale = scale;
    o.shift = shift;
    o.slope = slope;
    o.result = data(call.out, 0);
    for_rows([&](int64_t begin, int64_t end) { DSTRAIN_BEST(grad_rows)(o, begin, end); });
  }

 private:
  std::pair<double, double> totals(const float* sums) const {
    double plain = 0, apart = 0;
    for (int64_t b = 0; b < blocks_.count; ++b, sums += 2 * columns_) {
      plain += static_cast<double>(*sums);
      apart += static_cast<double>(sums[columns_]);
    }
    return {plain, apart};
  }
};

}  // namespace

int64_t batch_norm_workspace(const KernelSpec& spec) {
  return BatchNorm(spec, 0).workspace_bytes();
}
int64_t batch_norm_grad_workspace(const KernelSpec& spec) {
  return BatchNorm(spec, 1).workspace_bytes();
}

std::unique_ptr<Kernel> make_batch_norm(const KernelSpec& spec) {
  return std::make_unique<Forward>(spec);
}
std::unique_ptr<Kernel> make_batch_norm_grad(const KernelSpec& spec) {
  return std::make_unique<Backward>(spec);
}

}  // namespace dstrain::simd
#endif
