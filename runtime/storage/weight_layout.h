// WeightLayout: where the elements of weights are in a weight file, whose tensors may have other names, be transposed,
// and be joined to parameters or split over several (runtime/config/family/weight_map.h).
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

// Elements of a weight that follow each other in a tensor of the file. Where a tensor group divides the weight, their places
// are those in the memory of a part.
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

  // The weights of the register.
  size_t weights() const { return parts_.size(); }
  // The tensors of the file, in the order in which weights first have a part of them.
  const std::vector<FileTensor>& tensors() const { return tensors_; }
  // Returns whether a file has parts of the weight transposed.
  bool is_transposed(size_t weight) const;
  // Returns where elements [begin, begin + count) of a weight are; `weight`: its index in the register. Of a part of it they
  // are elements of the part's memory, and those that are padding are nowhere.
  std::vector<FileRun> runs(size_t weight, int64_t begin, int64_t count,
                            const TensorPart& part = {}) const;

 private:
  struct Part {
    size_t tensor = 0;
    int64_t begin = 0, rows = 0;  // elements before it in the weight, and its rows
    int64_t row_elements = 1;
    int64_t first = 0;
    bool transposed = false;
  };
  // Elements of a weight that its parts in files have as columns of rows: element `column` of row r, for columns [0, count),
  // is the weight's element (r, first + column), at r * stride + column.
  struct Columns {
    int64_t first = 0, count = 0, stride = 0;
  };
  void add(const StateEntry& weight);
  // Gives the tensors their shapes.
  void join(const StateRegister& weights);

  std::vector<FileTensor> tensors_;
  std::unordered_map<std::string, size_t> by_name_;  // of tensors_
  // Appends the runs of elements [begin, begin + count) of a weight that a part has, but for a transposed one.
  static void add_runs(const Part& part, int64_t begin, int64_t count, std::vector<FileRun>& list);
  // The same of a transposed part, some of whose columns are asked for. Elements count as these columns' do.
  void add_columns(const Part& part, const Columns& columns, int64_t begin, int64_t count,
                   std::vector<FileRun>& list) const;

  std::vector<std::vector<Part>> parts_;  // of every weight
  std::vector<Shape> shapes_;             // of every weight
};

}  // namespace dstrain
