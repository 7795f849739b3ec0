// An operand of a kernel under test, between guard bytes.
#pragma once

#include <catch2/catch.hpp>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "runtime/ir/kernel.h"
#include "tests/kernels/parity/test_device.h"
#include "tests/kernels/parity/values.h"

namespace dstrain::parity {

// An operand that owns its memory. It starts `offset` elements past a 64-byte boundary and has guard bytes before
// and after it, which guards_intact() checks. It starts as NaN (all bits set), so that an element that a kernel
// does not write fails a comparison.
class Guarded {
 public:
  Guarded(const Shape& shape, DType dtype, int64_t offset = 0)
      : shape_(shape), dtype_(dtype), start_(kGuard + offset * size_of(dtype)) {
    const int64_t total = start_ + bytes() + kGuard;
    storage_.reset(new (std::align_val_t{64}) unsigned char[static_cast<size_t>(total)]);
    total_ = total;
    guards([&](int64_t i) {
      storage_[static_cast<size_t>(i)] = guard_byte(i);
      return true;
    });
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
  // Copies the operand and its guards to a device and returns the tensor there.
  Tensor to_device(const TestDevice& on) const {
    auto* start = static_cast<unsigned char*>(on.to_device(storage_.get(), total_));
    return {start + start_, shape_, dtype_};
  }

  void set(const std::vector<double>& values) {
    REQUIRE(static_cast<int64_t>(values.size()) == elements());
    for (size_t i = 0; i < values.size(); ++i)
      store_from_double(data(), dtype_, static_cast<int64_t>(i), values[i]);
  }
  // Returns the elements; after set(), the values rounded to its dtype.
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
    return guards([&](int64_t i) { return storage_[static_cast<size_t>(i)] == guard_byte(i); });
  }

 private:
  struct Free {
    void operator()(unsigned char* p) const { ::operator delete[](p, std::align_val_t{64}); }
  };
  static constexpr int64_t kGuard = 256;
  // Calls `holds` for each guard byte until it returns false; returns whether it never did. The operand between the
  // guards, which may have 32 MiB, is passed over.
  template <class F>
  bool guards(const F& holds) const {
    for (int64_t i = 0; i < start_; ++i)
      if (!holds(i)) return false;
    for (int64_t i = start_ + bytes(); i < total_; ++i)
      if (!holds(i)) return false;
    return true;
  }
  static unsigned char guard_byte(int64_t i) { return static_cast<unsigned char>(0xa5 ^ (i * 7)); }

  Shape shape_;
  DType dtype_;
  int64_t start_, total_ = 0;
  std::unique_ptr<unsigned char[], Free> storage_;
};

}  // namespace dstrain::parity
