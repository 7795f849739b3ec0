// ReferenceTable: of each row of a sample the log-probability that the initial weights of a run give to its targets together
// (Objective::needs_reference). Datasets write its values to inputs with the role `reference`.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/data/dataset.h"

namespace dstrain {

class ReferenceTable {
 public:
  // Makes a table of zeros. rows: of a sample.
  ReferenceTable(int64_t rows, int64_t training_samples, int64_t validation_samples);

  int64_t rows() const { return rows_; }
  int64_t samples(Split split) const { return std::ssize(of(split)) / rows_; }
  // Returns the values of the rows of a sample, by its number in its split, to read and to set.
  std::span<float> at(Split split, int64_t sample);
  std::span<const float> at(Split split, int64_t sample) const;
  // Returns all values of a split, sample by sample.
  std::span<float> all(Split split) { return values_[split == Split::validation ? 1 : 0]; }

 private:
  const std::vector<float>& of(Split split) const {
    return values_[split == Split::validation ? 1 : 0];
  }

  int64_t rows_;
  std::array<std::vector<float>, 2> values_;
};

}  // namespace dstrain
