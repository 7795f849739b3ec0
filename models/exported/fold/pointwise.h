// Computes the elements of a result from those of operands of the same sizes.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "models/exported/fold/elements.h"
#include "models/exported/fold/host_tensor.h"

namespace dstrain::exported {

// Returns the sizes to which these are broadcast, or nothing if they do not fit.
std::optional<Sizes> broadcast_sizes(const std::vector<Sizes>& all);

// Returns the tensor repeated to larger sizes, or nothing if it does not fit. No element is copied.
std::optional<HostTensor> expanded(const HostTensor& tensor, const Sizes& sizes);

// Returns the sizes with 1 where all tensors, which have these sizes, repeat their elements.
Sizes distinct_sizes(const Sizes& sizes, const std::vector<const HostTensor*>& tensors);

// Returns a tensor of `type` with the elements compute(a, b, ...) of `operands`, which have the same sizes. Each distinct
// element is computed once.
template <class C, size_t N, class Compute>
HostTensor map_elements(FoldBudget& budget, ScalarType type,
                        const std::array<HostTensor, N>& operands, Compute compute) {
  const Sizes& sizes = operands[0].sizes;
  std::vector<const HostTensor*> tensors;
  std::array<C (*)(const char*), N> load;
  for (size_t i = 0; i < N; ++i) {
    tensors.push_back(&operands[i]);
    load[i] = loader_of<C>(operands[i].type);
  }
  const Sizes distinct = distinct_sizes(sizes, tensors);
  HostTensor result = make_tensor(budget, type, distinct);
  budget.spend(result.elements());
  tensors.push_back(&result);
  std::array<C, N> values;
  using Result = decltype(std::apply(compute, values));
  const auto store = storer_of<Result>(type);
  for (Walk walk(distinct, tensors); !walk.is_done(); walk.next()) {
    for (size_t i = 0; i < N; ++i) values[i] = load[i](walk.at(i));
    store(walk.at(N), std::apply(compute, values));
  }
  return expanded(result, sizes).value();
}

}  // namespace dstrain::exported
