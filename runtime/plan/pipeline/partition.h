// How the layers of a model are divided into the parts of a pipeline: runs of layers in model order. A division
// is the first layer of every part and, at the end, the number of layers. Pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace dstrain {

// The weight of one layer when layers are divided into parts.
struct LayerSize {
  std::string name;
  int64_t parameters = 0;
  double work = 0;    // time of a micro-batch, in any unit
  int64_t bytes = 0;  // memory that its stage needs for it
};

// Returns the bytes of a part that has the layers [first, last).
using PartBytes = std::function<int64_t(int part, int64_t first, int64_t last)>;

// Returns parts of equally many layers, the first ones of one more where they cannot be equal. With fewer layers
// than parts, the last parts are empty.
std::vector<int64_t> partition_uniform(int64_t layers, int parts);

// Returns the division with the smallest difference between the heaviest and the lightest part that DeepSpeed's
// partition_balanced finds; where several are as good, the one whose last parts begin latest. No part is empty
// unless there are fewer layers than parts; then it is the uniform one.
std::vector<int64_t> partition_balanced(const std::vector<int64_t>& weights, int parts);

// Returns a division whose largest part is as small as possible, by `size` of a part with the layers [first,
// last); of those, one with the smallest sum of squares, so that the other parts are alike, too. No part is
// empty unless there are fewer layers than parts; then it is the uniform one.
std::vector<int64_t> partition_smallest_maximum(
    int64_t layers, int parts,
    const std::function<double(int part, int64_t first, int64_t last)>& size);

// Returns the division by a method of the configuration: "uniform"; "parameters", balanced; "type:REGEX",
// balanced by the number of layers in whose name the expression is found, in upper or lower case; "time", the
// smallest maximum of work; "memory", that of `bytes`, or of the layers' bytes without it. Throws UserError if
// there is no such method, the expression is wrong, or no layer's name has it.
std::vector<int64_t> partition_by(const std::string& method, const std::vector<LayerSize>& layers,
                                  int parts, const PartBytes& bytes = {});

}  // namespace dstrain
