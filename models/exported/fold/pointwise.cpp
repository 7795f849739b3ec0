#include "models/exported/fold/pointwise.h"

#include <algorithm>

namespace dstrain::exported {

std::optional<Sizes> broadcast_sizes(const std::vector<Sizes>& all) {
  Sizes result;
  for (const Sizes& sizes : all) {
    if (sizes.size() > result.size())
      result.insert(result.begin(), sizes.size() - result.size(), 1);
    const size_t lead = result.size() - sizes.size();
    for (size_t i = 0; i < sizes.size(); ++i) {
      int64_t& size = result[lead + i];
      if (size != sizes[i] && size != 1 && sizes[i] != 1) return std::nullopt;
      if (size == 1) size = sizes[i];
    }
  }
  return result;
}

std::optional<HostTensor> expanded(const HostTensor& tensor, const Sizes& sizes) {
  if (tensor.rank() > sizes.size()) return std::nullopt;
  HostTensor result = tensor;
  const size_t lead = sizes.size() - tensor.rank();
  result.sizes = sizes;
  result.strides.insert(result.strides.begin(), lead, 0);
  for (size_t i = 0; i < tensor.rank(); ++i) {
    if (tensor.sizes[i] == sizes[lead + i]) continue;
    if (tensor.sizes[i] != 1) return std::nullopt;
    result.strides[lead + i] = 0;
  }
  return result;
}

Sizes distinct_sizes(const Sizes& sizes, const std::vector<const HostTensor*>& tensors) {
  Sizes distinct = sizes;
  for (size_t i = 0; i < sizes.size(); ++i)
    if (sizes[i] > 1 &&
        std::ranges::all_of(tensors, [i](const HostTensor* t) { return t->strides[i] == 0; }))
      distinct[i] = 1;
  return distinct;
}

}  // namespace dstrain::exported
