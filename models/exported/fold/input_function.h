// InputFunction: a number of a graph that depends on the inputs of the user alone, such as a count of targets. The host
// computes it from a batch.
#pragma once

#include <set>
#include <span>
#include <string>
#include <vector>

#include "models/exported/fold/fold.h"
#include "runtime/core/input_tensor.h"

namespace dstrain::exported {

class InputFunction {
 public:
  // `result`: a tensor of one element. `unshifted`: the name of an input whose tokens are at their own places, where data give
  // each token's successor; empty: none. `folded` must live as long as the object. Throws UserError if the tensor depends
  // on more than inputs, or on an operator that the host does not compute.
  InputFunction(const FoldedGraph& folded, TensorRef result, std::string unshifted);

  // Returns the names of the inputs that it depends on.
  const std::set<std::string>& inputs() const { return inputs_; }
  // Returns the number. `batch` has all of those inputs, of the graph's sizes. Any thread may ask. Throws RunError if it
  // cannot be computed.
  double value(std::span<const InputTensor> batch) const;

 private:
  void need(TensorRef ref);

  const FoldedGraph& folded_;
  TensorRef result_;
  std::string unshifted_;
  std::set<std::string> inputs_;
  std::set<size_t> nodes_;  // that are computed, by their places
};

}  // namespace dstrain::exported
