// Support of the kernels' tests: operands between guard bytes at any element offset, seeded fills,
// conversion from and to double, comparison with messages that name the worst element, and
// run_kernel, which makes a kernel, gives it guarded scratch memory, runs it and checks every
// guard.
//
// Outputs start as NaN (all bits set), so an element that a kernel forgot fails a comparison.
#pragma once

#include <fmt/core.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "runtime/core/philox.h"
#include "runtime/ir/kernel.h"
#include "tests/kernels/backend.h"

namespace dstrain::parity {

// --- values ----------------------------------------------------------------------------------

// Uniform in [low, high), the same for the same seed.
inline std::vector<double> uniform_values(int64_t n, uint64_t seed, double low = -1,
                                          double high = 1) {
  std::vector<double> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = low + (high - low) * static_cast<double>(mix64(mix64(seed) + i) >> 11) * 0x1p-53;
  return values;
}

// N(0, std), the same for the same seed.
inline std::vector<double> normal_values(int64_t n, uint64_t seed, double std = 1) {
  const std::vector<double> u = uniform_values(2 * n, seed, 0x1p-53, 1);
  std::vector<double> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = std * std::sqrt(-2 * std::log(u[2 * i])) * std::cos(2 * M_PI * u[2 * i + 1]);
  return values;
}

// Integers in [low, high), as doubles.
inline std::vector<double> integer_values(int64_t n, uint64_t seed, int64_t low, int64_t high) {
  std::vector<double> values =
      uniform_values(n, seed, static_cast<double>(low), static_cast<double>(high));
  for (double& v : values) v = std::floor(v);
  return values;
}

inline double load_as_double(const void* at, DType dtype, int64_t i) {
  const auto read = [&](auto value) {
    std::memcpy(&value, static_cast<const char*>(at) + i * static_cast<int64_t>(sizeof(value)),
                sizeof(value));
    return value;
  };
  switch (dtype) {
    case DType::f32:
      return read(float{});
    case DType::bf16:
      return to_float(read(bf16{}));
    case DType::f16:
      return to_float(read(f16{}));
    case DType::f64:
      return read(double{});
    case DType::i32:
      return read(int32_t{});
    case DType::u8:
      return read(uint8_t{});
  }
  return 0;
}

inline void store_from_double(void* at, DType dtype, int64_t i, double x) {
  const auto write = [&](auto value) {
    std::memcpy(static_cast<char*>(at) + i * static_cast<int64_t>(sizeof(value)), &value,
                sizeof(value));
  };
  switch (dtype) {
    case DType::f32:
      return write(static_cast<float>(x));
    case DType::bf16:
      return write(to_bf16(static_cast<float>(x)));
    case DType::f16:
      return write(to_f16(static_cast<float>(x)));
    case DType::f64:
      return write(x);
    case DType::i32:
      return write(static_cast<int32_t>(x));
    case DType::u8:
      return write(static_cast<uint8_t>(x));
  }
}

// --- operands --------------------------------------------------------------------------------

// An operand that owns its memory: `offset` elements past a 64-byte boundary (after a guard), with
// guard bytes before and after that guards_intact() checks.
class Guarded {
 public:
  Guarded(const Shape& shape, DType dtype, int64_t offset = 0)
      : shape_(shape), dtype_(dtype), start_(kGuard + offset * size_of(dtype)) {
    const int64_t total = start_ + bytes() + kGuard;
    storage_.reset(new (std::align_val_t{64}) unsigned char[static_cast<size_t>(total)]);
    total_ = total;
    for (int64_t i = 0; i < total_; ++i) storage_[static_cast<size_t>(i)] = guard_byte(i);
    std::memset(data(), 0xff, static_cast<size_t>(bytes()));
  }
  Guarded(const Shape& shape, DType dtype, const std::vector<double>& values, int64_t offset = 0)
      : Guarded(shape, dtype, offset) {
    set(values);
  }

  const Shape& shape() const { return shape_; }
  DType dtype() const { return dtype_; }
  int64_t elements() const { return shape_.elements(); }
  int64_t bytes() const { return elements() * size_of(dtype_); }
  void* data() const { return storage_.get() + start_; }
  Tensor tensor() const { return {data(), shape_, dtype_}; }
  TensorSpec spec() const { return {shape_, dtype_}; }
  // The operand as kernels of a backend see it, guards and all.
  Tensor enter(const Backend& on) const {
    auto* start = static_cast<unsigned char*>(on.enter(storage_.get(), total_));
    return {start + start_, shape_, dtype_};
  }

  void set(const std::vector<double>& values) {
    REQUIRE(static_cast<int64_t>(values.size()) == elements());
    for (size_t i = 0; i < values.size(); ++i)
      store_from_double(data(), dtype_, static_cast<int64_t>(i), values[i]);
  }
  // What the operand holds: after set(), the values as rounded to its dtype.
  std::vector<double> values() const {
    std::vector<double> v(static_cast<size_t>(elements()));
    for (size_t i = 0; i < v.size(); ++i)
      v[i] = load_as_double(data(), dtype_, static_cast<int64_t>(i));
    return v;
  }
  std::string raw() const {
    return {static_cast<const char*>(data()), static_cast<size_t>(bytes())};
  }

  bool guards_intact() const {
    for (int64_t i = 0; i < total_; ++i)
      if ((i < start_ || i >= start_ + bytes()) &&
          storage_[static_cast<size_t>(i)] != guard_byte(i))
        return false;
    return true;
  }

 private:
  struct Free {
    void operator()(unsigned char* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  static constexpr int64_t kGuard = 256;
  static unsigned char guard_byte(int64_t i) { return static_cast<unsigned char>(0xa5 ^ (i * 7)); }

  Shape shape_;
  DType dtype_;
  int64_t start_, total_ = 0;
  std::unique_ptr<unsigned char[], Free> storage_;
};

// --- running ---------------------------------------------------------------------------------

struct Call {
  OpKind op{};
  OpAttrs attrs{};
  int threads = 1;
  const StepState* state = nullptr;
  int64_t sample_offset = 0;
  bool accumulate = false;
};

// Makes the kernel of `call` for these operands (null: absent), runs it once in scratch memory of
// exactly the size it asked for, and requires that no guard changed. The same operand may be among
// the inputs and the outputs.
inline void run_kernel(const Backend& on, const Call& call, const std::vector<const Guarded*>& in,
                       const std::vector<Guarded*>& out) {
  std::map<const Guarded*, Tensor> entered;
  const auto tensor_of = [&](const Guarded* g) {
    if (!g) return Tensor{};
    const auto [at, is_new] = entered.try_emplace(g);
    if (is_new) at->second = g->enter(on);
    return at->second;
  };
  std::vector<TensorSpec> in_specs, out_specs;
  std::vector<Tensor> in_tensors, out_tensors;
  for (const Guarded* g : in) {
    in_specs.push_back(g ? g->spec() : TensorSpec{});
    in_tensors.push_back(tensor_of(g));
  }
  for (const Guarded* g : out) {
    out_specs.push_back(g ? g->spec() : TensorSpec{});
    out_tensors.push_back(tensor_of(g));
  }
  const KernelSpec spec{call.op, call.attrs, in_specs, out_specs, call.threads};
  const Guarded workspace(Shape{on.workspace_bytes(spec)}, DType::u8);
  const std::unique_ptr<Kernel> kernel = on.make(spec);
  REQUIRE(kernel != nullptr);
  StepState state = call.state ? *call.state : StepState{};
  KernelCall run;
  run.in = in_tensors;
  run.out = out_tensors;
  run.workspace = workspace.enter(on);
  run.state = call.state ? static_cast<StepState*>(on.enter(&state, sizeof(state))) : nullptr;
  run.sample_offset = call.sample_offset;
  run.accumulate = call.accumulate;
  kernel->run(run);
  on.finish();
  REQUIRE(workspace.guards_intact());
  for (size_t i = 0; i < in.size(); ++i) {
    INFO("guards of input " << i);
    REQUIRE((!in[i] || in[i]->guards_intact()));
  }
  for (size_t i = 0; i < out.size(); ++i) {
    INFO("guards of output " << i);
    REQUIRE((!out[i] || out[i]->guards_intact()));
  }
}

// --- comparing -------------------------------------------------------------------------------

struct Tolerance {
  double relative = 0, absolute = 0;
};

// What one rounding to `dtype` costs, and in f32 a few roundings of intermediate values.
inline Tolerance tolerance_of(DType dtype, double scale = 1) {
  switch (dtype) {
    case DType::bf16:
      return {0x1p-8, 1e-6 * scale};
    case DType::f16:
      return {0x1p-11 + 1e-6, 0x1p-24 + 1e-6 * scale};
    default:
      return {2e-6, 1e-6 * scale};
  }
}

// Requires |got - expected| <= absolute + relative * |expected| everywhere (NaN only where
// expected).
inline void require_close(const std::string& what, const std::vector<double>& got,
                          const std::vector<double>& expected, Tolerance tolerance) {
  INFO(what);
  REQUIRE(got.size() == expected.size());
  size_t bad = 0, worst = 0;
  double worst_excess = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i] || (std::isnan(got[i]) && std::isnan(expected[i]))) continue;
    const double allowed = tolerance.absolute + tolerance.relative * std::abs(expected[i]);
    const double error = std::abs(got[i] - expected[i]);
    if (error <= allowed) continue;
    ++bad;
    const double excess = std::isfinite(error) ? error / allowed : HUGE_VAL;
    if (bad == 1 || excess > worst_excess) worst_excess = excess, worst = i;
  }
  if (bad > 0)
    FAIL(
        fmt::format("{} of {} elements are off; worst [{}]: got {:.9g}, expected {:.9g}, {:.3g} "
                    "times the tolerance (relative {:.3g}, absolute {:.3g})",
                    bad, got.size(), worst, got[worst], expected[worst], worst_excess,
                    tolerance.relative, tolerance.absolute));
}

// |got - expected| / |expected|, Euclidean norms.
inline double relative_norm_error(const std::vector<double>& got,
                                  const std::vector<double>& expected) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += (got[i] - expected[i]) * (got[i] - expected[i]);
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference) / std::max(std::sqrt(norm), 1e-300);
}

// Requires equal bytes and names the first element that differs.
inline void require_same_bits(const std::string& what, const Guarded& a, const Guarded& b) {
  INFO(what);
  REQUIRE(a.shape() == b.shape());
  REQUIRE(a.dtype() == b.dtype());
  if (a.raw() == b.raw()) return;
  const std::vector<double> x = a.values(), y = b.values();
  for (size_t i = 0; i < x.size(); ++i) {
    const int64_t at = static_cast<int64_t>(i) * size_of(a.dtype());
    if (std::memcmp(static_cast<char*>(a.data()) + at, static_cast<char*>(b.data()) + at,
                    static_cast<size_t>(size_of(a.dtype()))) != 0)
      FAIL(fmt::format("bits differ first at [{}]: {:.9g} and {:.9g}", i, x[i], y[i]));
  }
}

// d/de f(x + e * direction) at e = 0 by central differences; f takes and gives doubles.
template <class F>
double directional_derivative(const F& f, const std::vector<double>& x,
                              const std::vector<double>& direction, double step = 1e-5) {
  std::vector<double> up = x, down = x;
  for (size_t i = 0; i < x.size(); ++i)
    up[i] += step * direction[i], down[i] -= step * direction[i];
  return (f(up) - f(down)) / (2 * step);
}

inline double dot(const std::vector<double>& a, const std::vector<double>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

}  // namespace dstrain::parity
