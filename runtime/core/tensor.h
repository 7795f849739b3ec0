// Shapes and tensors. A tensor is a typed view of contiguous memory that it does not own.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "runtime/core/dtype.h"

namespace dstrain {

// A shape of up to kMaxRank dimensions, row-major. An empty shape is a scalar with one element.
struct Shape {
  static constexpr int kMaxRank = 8;
  std::array<int64_t, kMaxRank> dims{};
  int rank = 0;

  Shape() = default;
  // Throws InternalError if the list has more than kMaxRank dimensions.
  Shape(std::initializer_list<int64_t> list) {
    for (int64_t d : list) append(d);
  }
  // Adds a last dimension. Throws InternalError if there are kMaxRank already.
  void append(int64_t dim) {
    if (rank == kMaxRank) fail_full(dim);
    dims[static_cast<size_t>(rank++)] = dim;
  }
  // Dimension `i`; negative ones count from the last.
  int64_t operator[](int i) const { return dims[static_cast<size_t>(i < 0 ? i + rank : i)]; }
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[static_cast<size_t>(i)];
    return n;
  }
  bool operator==(const Shape&) const = default;

 private:
  [[noreturn]] void fail_full(int64_t dim) const;
};

std::string to_string(const Shape& shape);  // "(8, 256, 768)"

// A view of memory: address, shape and element type.
struct Tensor {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;

  int64_t elements() const { return shape.elements(); }
  int64_t bytes() const { return elements() * size_of(dtype); }
  explicit operator bool() const { return data != nullptr; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

}  // namespace dstrain
