// WeightLayout: where the elements of weights are in a weight file, whose tensors may have other names, be transposed,
// and be joined to parameters or split over several (runtime/config/model/weight_map.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/storage/state.h"

namespace dstrain {

// Gives weights the parts that they have in files. Throws InternalError if the map names a weight that is none of them.
StateRegister mapped(StateRegister weights, const WeightMap& map);

// A tensor of a weight file.
struct FileTensor {
  std::string name;
  Shape shape;
};

// Elements of a weight that follow each other in a tensor of the file.
struct FileRun {
  size_t tensor = 0;  // index into tensors()
  int64_t at = 0;     // the first one's element in the tensor
  int64_t count = 0;
  int64_t begin = 0;   // the first one's element in the weight
  int64_t stride = 1;  // elements from one to the next in the weight
};

class WeightLayout {
 public:
  // Throws InternalError if the parts of a weight have not its shape, or those of a tensor do not cover it once.
  explicit WeightLayout(const StateRegister& weights);

  // The tensors of the file, in the order in which weights first have a part of them.
  const std::vector<FileTensor>& tensors() const { return tensors_; }
  // Returns where elements [begin, begin + count) of a weight are; `weight`: its index in the register.
  std::vector<FileRun> runs(size_t weight, int64_t begin, int64_t count) const;

 private:
  struct Part {
    size_t tensor = 0;
    int64_t begin = 0, rows = 0;  // elements before it in the weight, and its rows
    int64_t row_elements = 1;
    int64_t first = 0;
    bool transposed = false;
  };
  void add(const StateEntry& weight);
  // Gives the tensors their shapes.
  void join(const StateRegister& weights);

  std::vector<FileTensor> tensors_;
  std::unordered_map<std::string, size_t> by_name_;  // of tensors_
  std::vector<std::vector<Part>> parts_;             // of every weight
};

}  // namespace dstrain
