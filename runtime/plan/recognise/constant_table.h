// The values of a constant of a program.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>

#include "runtime/ir/program.h"

namespace dstrain {

// Lives no longer than the program.
class ConstantTable {
 public:
  // Returns nothing if the buffer is no constant of floats.
  static std::optional<ConstantTable> of(const Program& program, BufferId id) {
    const auto constant = std::ranges::find(program.constants, id, &ProgramConstant::buffer);
    if (constant == program.constants.end() || program.at(id).dtype != DType::f32)
      return std::nullopt;
    return ConstantTable(*constant->bytes);
  }
  int64_t size() const { return static_cast<int64_t>(bytes_->size() / sizeof(float)); }
  double at(int64_t element) const {
    float value = 0;
    std::memcpy(&value, bytes_->data() + static_cast<size_t>(element) * sizeof value, sizeof value);
    return static_cast<double>(value);
  }

 private:
  explicit ConstantTable(const std::string& bytes) : bytes_(&bytes) {}
  const std::string* bytes_;
};

}  // namespace dstrain
