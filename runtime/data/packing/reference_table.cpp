#include "runtime/data/packing/reference_table.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

ReferencePlaces rows_of_samples(int64_t rows, int64_t samples) {
  std::vector<int32_t> all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), 0);
  ReferencePlaces places;
  for (int64_t s = 0; s < samples; ++s) places.add_sample(all);
  return places;
}

}  // namespace

ReferenceTable::ReferenceTable(int64_t width, ReferencePlaces training, ReferencePlaces validation)
    : width_(width), places_{std::move(training), std::move(validation)} {
  for (size_t i = 0; i < places_.size(); ++i) values_[i].resize(places_[i].places.size());
}

ReferenceTable::ReferenceTable(int64_t rows, int64_t training_samples, int64_t validation_samples)
    : ReferenceTable(rows, rows_of_samples(rows, training_samples),
                     rows_of_samples(rows, validation_samples)) {}

ReferenceTable::Range ReferenceTable::range_of(Split split, int64_t sample) const {
  check(0 <= sample && sample < samples(split), "sample {} has no reference", sample);
  const std::vector<int64_t>& ends = of(split).ends;
  const auto i = static_cast<size_t>(sample);
  const int64_t begin = sample == 0 ? 0 : ends[i - 1];
  return {static_cast<size_t>(begin), static_cast<size_t>(ends[i] - begin)};
}

std::span<const float> ReferenceTable::at(Split split, int64_t sample) const {
  const Range range = range_of(split, sample);
  return std::span(values_[split == Split::validation ? 1 : 0]).subspan(range.begin, range.count);
}

std::span<float> ReferenceTable::at(Split split, int64_t sample) {
  const Range range = range_of(split, sample);
  return std::span(values_[split == Split::validation ? 1 : 0]).subspan(range.begin, range.count);
}

std::span<const int32_t> ReferenceTable::places(Split split, int64_t sample) const {
  const Range range = range_of(split, sample);
  return std::span(of(split).places).subspan(range.begin, range.count);
}

void ReferenceTable::write(Split split, int64_t sample, float* to) const {
  const std::span<const float> values = at(split, sample);
  const std::span<const int32_t> where = places(split, sample);
  std::fill_n(to, width_, 0.0f);
  for (size_t i = 0; i < values.size(); ++i) to[where[i]] = values[i];
}

}  // namespace dstrain
