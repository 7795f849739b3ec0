// Shapes and tensors. A tensor is a typed view of contiguous memory that it does not own.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

#include "runtime/core/dtype.h"

namespace dstrain {

// A shape of up to four dimensions, row-major. An empty shape is a scalar with one element.
struct Shape {
  std::array<int64_t, 4> dims{};
  int rank = 0;

  Shape() = default;
  Shape(std::initializer_list<int64_t> list) {
    for (int64_t d : list) dims[static_cast<size_t>(rank++)] = d;
  }
  // Dimension `i`; negative ones count from the last.
  int64_t operator[](int i) const { return dims[static_cast<size_t>(i < 0 ? i + rank : i)]; }
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[static_cast<size_t>(i)];
    return n;
  }
  bool operator==(const Shape&) const = default;
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
