#include "models/exported/fold/host_tensor.h"

#include <algorithm>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain::exported {
namespace {

int64_t product_of(const Sizes& sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  return n;
}

}  // namespace

int64_t HostTensor::elements() const {
  return product_of(sizes);
}

std::string HostTensor::bytes() const {
  const int64_t size = size_of(type);
  std::string bytes(static_cast<size_t>(elements() * size), '\0');
  char* to = bytes.data();
  for (Walk walk(sizes, {this}); !walk.is_done(); walk.next(), to += size)
    std::copy_n(walk.at(0), size, to);
  return bytes;
}

HostTensor make_tensor(FoldBudget& budget, ScalarType type, const Sizes& sizes) {
  int64_t bytes = size_of(type);
  for (const int64_t size : sizes)
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(size, 1), &bytes))
      throw LeftError("its value has more elements than any memory");
  return {type, sizes, row_strides(sizes), 0, budget.allocate(product_of(sizes) * size_of(type))};
}

HostTensor make_tensor(FoldBudget& budget, ScalarType type, const Sizes& sizes,
                       std::string_view bytes) {
  HostTensor tensor = make_tensor(budget, type, sizes);
  check(std::ssize(bytes) == tensor.elements() * size_of(type),
        "{} bytes are given for {} elements", bytes.size(), tensor.elements());
  std::ranges::copy(bytes, tensor.data.get());
  return tensor;
}

Sizes row_strides(const Sizes& sizes) {
  Sizes strides(sizes.size());
  uint64_t stride = 1;  // may wrap around for a tensor without elements
  for (size_t i = sizes.size(); i-- > 0;) {
    strides[i] = static_cast<int64_t>(stride);
    stride *= static_cast<uint64_t>(std::max<int64_t>(sizes[i], 1));
  }
  return strides;
}

Walk::Walk(const Sizes& sizes, const std::vector<const HostTensor*>& tensors)
    : sizes_(sizes), left_(product_of(sizes)), index_(sizes.size(), 0) {
  for (const HostTensor* tensor : tensors) {
    const int64_t size = size_of(tensor->type);
    at_.push_back(tensor->data.get() + tensor->offset * size);
    Sizes bytes;
    for (const int64_t stride : tensor->strides) bytes.push_back(stride * size);
    bytes_.push_back(std::move(bytes));
  }
}

void Walk::next() {
  if (--left_ == 0) return;
  for (size_t i = sizes_.size(); i-- > 0;) {
    const bool wraps = ++index_[i] == sizes_[i];
    for (size_t t = 0; t < at_.size(); ++t)
      at_[t] += wraps ? -(sizes_[i] - 1) * bytes_[t][i] : bytes_[t][i];
    if (!wraps) return;
    index_[i] = 0;
  }
}

}  // namespace dstrain::exported
