// ReferenceTable: of each answer of a sample the log-probability that the initial weights of a run give to its targets together
// (Objective::needs_reference). Datasets write its values to inputs with the role `reference`.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/data/dataset.h"

namespace dstrain {

// The values of the samples of a split, among all that a model gives for a sample: one for each row, or where a row has several
// answers one for each place of it, of which those at which answers begin count.
struct ReferencePlaces {
  std::vector<int64_t> ends;    // of each sample: the number of values up to its end
  std::vector<int32_t> places;  // of each value, among those that the model gives

  void add_sample(std::span<const int32_t> of_sample) {
    places.insert(places.end(), of_sample.begin(), of_sample.end());
    ends.push_back(std::ssize(places));
  }
};

class ReferenceTable {
 public:
  // Makes a table of zeros. width: how many values a model gives for a sample.
  ReferenceTable(int64_t width, ReferencePlaces training, ReferencePlaces validation);
  // The same, of samples with a value for each of their rows.
  ReferenceTable(int64_t rows, int64_t training_samples, int64_t validation_samples);

  int64_t width() const { return width_; }
  int64_t samples(Split split) const { return std::ssize(of(split).ends); }
  // Returns the values of a sample, by its number in its split, to read and to set.
  std::span<const float> at(Split split, int64_t sample) const;
  std::span<float> at(Split split, int64_t sample);
  // Returns the places of the same values.
  std::span<const int32_t> places(Split split, int64_t sample) const;
  // Returns the number of values of both splits.
  int64_t values() const { return std::ssize(values_[0]) + std::ssize(values_[1]); }
  // Writes all `width` values of a sample: 0 where it has none.
  void write(Split split, int64_t sample, float* to) const;

 private:
  struct Range {
    size_t begin = 0, count = 0;
  };
  const ReferencePlaces& of(Split split) const {
    return places_[split == Split::validation ? 1 : 0];
  }
  Range range_of(Split split, int64_t sample) const;

  int64_t width_;
  std::array<ReferencePlaces, 2> places_;
  std::array<std::vector<float>, 2> values_;
};

}  // namespace dstrain
