// HostTensor: a value that is known when a plan is made.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/exported/fold/budget.h"
#include "models/exported/graph/scalar_type.h"

namespace dstrain::exported {

using Sizes = std::vector<int64_t>;

// A tensor in memory, whose elements several may share. Element (i, j) is at offset + i * strides[0] + j * strides[1] of
// the data, in elements. The strides of a tensor that was repeated are 0.
struct HostTensor {
  ScalarType type = ScalarType::f32;
  Sizes sizes, strides;
  int64_t offset = 0;
  std::shared_ptr<char> data;

  int64_t elements() const;
  size_t rank() const { return sizes.size(); }
  // Returns the elements one after the other, the last dimension first.
  std::string bytes() const;
};

// Returns a tensor of zeros without gaps.
HostTensor make_tensor(FoldBudget& budget, ScalarType type, const Sizes& sizes);
// Returns a tensor with these elements, which must be as many as the sizes say.
HostTensor make_tensor(FoldBudget& budget, ScalarType type, const Sizes& sizes,
                       std::string_view bytes);

// Returns the strides of a tensor without gaps.
Sizes row_strides(const Sizes& sizes);

// Goes through the elements of tensors of the same sizes, the last dimension first.
class Walk {
 public:
  Walk(const Sizes& sizes, const std::vector<const HostTensor*>& tensors);

  bool is_done() const { return left_ == 0; }
  void next();
  // Returns the address of the element of a tensor.
  char* at(size_t tensor) const { return at_[tensor]; }

 private:
  const Sizes& sizes_;
  int64_t left_;
  Sizes index_;
  std::vector<char*> at_;
  std::vector<Sizes> bytes_;  // by tensor and dimension: the bytes from an element to the next
};

}  // namespace dstrain::exported
