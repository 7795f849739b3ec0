#include "runtime/data/packing/reference_table.h"

#include "runtime/core/error.h"

namespace dstrain {

ReferenceTable::ReferenceTable(int64_t rows, int64_t training_samples, int64_t validation_samples)
    : rows_(rows) {
  values_[0].resize(static_cast<size_t>(rows * training_samples));
  values_[1].resize(static_cast<size_t>(rows * validation_samples));
}

std::span<const float> ReferenceTable::at(Split split, int64_t sample) const {
  check(0 <= sample && sample < samples(split), "sample {} has no reference", sample);
  return std::span(of(split)).subspan(static_cast<size_t>(sample * rows_),
                                      static_cast<size_t>(rows_));
}

std::span<float> ReferenceTable::at(Split split, int64_t sample) {
  check(0 <= sample && sample < samples(split), "sample {} has no reference", sample);
  return all(split).subspan(static_cast<size_t>(sample * rows_), static_cast<size_t>(rows_));
}

}  // namespace dstrain
