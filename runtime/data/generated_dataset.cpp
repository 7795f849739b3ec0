#include "runtime/data/generated_dataset.h"

#include <algorithm>

#include "runtime/config/family/family.h"
#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"

namespace dstrain {
namespace {

constexpr int64_t kTogether = 4;  // samples whose sums run side by side

}  // namespace

GeneratedDataset::GeneratedDataset(const Job& job)
    : seed_(job.seed), features_(job.seed, job.model.elements_of(InputRole::features)) {
  const ModelInput* labels = job.model.family().input(InputRole::labels);
  check(labels, "a {} wants no labels", job.model.family().title);
  out_size_ = job.model.integer(labels->classes);
  vocabulary_.format = DataFormat::automatic;
}

void GeneratedDataset::read(Split split, int64_t first, int64_t count,
                            std::span<const InputTensor> inputs) const {
  const int64_t in_size = features_.elements();
  auto* features = static_cast<float*>(samples_in(inputs, InputRole::features, count, in_size));
  auto* labels = static_cast<int32_t*>(samples_in(inputs, InputRole::labels, count, 1));
  const int64_t groups = (count + kTogether - 1) / kTogether;
  const auto fill = [&](int64_t group) {
    const int64_t s = group * kTogether;
    const int64_t n = std::min(kTogether, count - s);
    const float* rows[kTogether];
    for (int64_t i = 0; i < kTogether; ++i) {
      float* row = features + (s + std::min(i, n - 1)) * in_size;
      if (i < n) features_.fill(split, first + s + i, row);
      rows[i] = row;
    }
    // Each sum is a chain of dependent additions in index order; four chains hide their latency.
    double sums[kTogether] = {};
    for (int64_t j = 0; j < in_size; ++j)
      for (int64_t i = 0; i < kTogether; ++i) {
        const double x = rows[i][j];
        sums[i] += x * x;
      }
    for (int64_t i = 0; i < n; ++i)
      labels[s + i] = static_cast<int32_t>(static_cast<int64_t>(sums[i]) % out_size_);
  };
  run_ranges(count * in_size > 1 << 15 ? thread_count() : 1, groups,
             [&](int64_t begin, int64_t end) {
               for (int64_t group = begin; group < end; ++group) fill(group);
             });
}

std::string GeneratedDataset::summary() const {
  return fmt::format("made-up samples of {} features and {} classes, seed {}", features_.elements(),
                     out_size_, seed_);
}

}  // namespace dstrain
