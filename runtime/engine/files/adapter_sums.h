// AdapterSums: what low-rank adapters add to the weights that they belong to: W + scale * B A, a piece of W at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/tensor.h"
#include "runtime/storage/state.h"

namespace dstrain {

class AdapterSums {
 public:
  // `adapters`: names and shapes of A (r, inputs) and B (outputs, r) of each module. `scale`: LoraConfig::scale().
  AdapterSums(const StateRegister& adapters, double scale);

  // Takes elements [begin, begin + values.elements()) of an adapter; `values`: f32 on the host.
  void keep(const std::string& name, int64_t begin, const Tensor& values);
  // Returns whether the weight has an adapter.
  bool adapts(std::string_view weight) const { return adapters_.contains(weight); }
  // Adds to elements [begin, begin + values.size()) of a weight what its adapter does, products in f32 in the order of the
  // rank's rows. All of the adapter must have been taken. Changes nothing for a weight without one.
  void add(std::string_view weight, int64_t begin, std::span<float> values) const;

 private:
  struct Adapter {
    int64_t r = 0, inputs = 0;
    std::vector<float> a, b;
  };
  float scale_;
  std::map<std::string, Adapter, std::less<>> adapters_;  // by the name of the weight
};

}  // namespace dstrain
