#include "runtime/data/generated_dataset.h"

#include <algorithm>
#include <cstring>

#include "runtime/config/model/family.h"
#include "runtime/core/error.h"
#include "runtime/core/philox.h"
#include "runtime/core/threads/parts.h"

namespace dstrain {
namespace {

constexpr int kLanes = 16;               // Philox blocks computed side by side
constexpr int64_t kStride = 4 * kLanes;  // values of these blocks
constexpr int64_t kTogether = 4;         // samples whose sums run side by side
constexpr int64_t kFirstValidation = int64_t{1} << 40;

// Computes Philox blocks first .. first+kLanes-1 of a sample, round by round over all lanes, so that the
// compiler vectorizes the loops.
void philox_lanes(PhiloxKey key, uint64_t sample, uint32_t first, uint32_t (&c)[4][kLanes]) {
  for (int l = 0; l < kLanes; ++l) {
    c[0][l] = static_cast<uint32_t>(sample);
    c[1][l] = static_cast<uint32_t>(sample >> 32);
    c[2][l] = first + static_cast<uint32_t>(l);
    c[3][l] = 0;
  }
  for (int round = 0; round < 10; ++round) {
    for (int l = 0; l < kLanes; ++l) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c[0][l];
      const uint64_t p1 = uint64_t{0xCD9E8D57u} * c[2][l];
      c[0][l] = static_cast<uint32_t>(p1 >> 32) ^ c[1][l] ^ key[0];
      c[1][l] = static_cast<uint32_t>(p1);
      c[2][l] = static_cast<uint32_t>(p0 >> 32) ^ c[3][l] ^ key[1];
      c[3][l] = static_cast<uint32_t>(p0);
    }
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
}

// Returns -10 + 20 u / 2^32, computed as 20 (u - 2^31) / 2^32, which rounds once.
float feature(uint32_t u) {
  return static_cast<float>(static_cast<double>(static_cast<int32_t>(u ^ 0x80000000u)) *
                            (20.0 / 4294967296.0));
}

void fill_features(PhiloxKey key, uint64_t sample, float* x, int64_t count) {
  uint32_t words[4][kLanes];
  float values[kStride];
  for (int64_t j = 0; j < count; j += kStride) {
    philox_lanes(key, sample, static_cast<uint32_t>(j / 4), words);
    for (int l = 0; l < kLanes; ++l)
      for (int w = 0; w < 4; ++w) values[4 * l + w] = feature(words[w][l]);
    std::memcpy(x + j, values, static_cast<size_t>(std::min(kStride, count - j)) * sizeof(float));
  }
}

}  // namespace

GeneratedDataset::GeneratedDataset(const Job& job) : seed_(job.seed) {
  const ModelFamily& family = job.model.family();
  const ModelInput *features = family.input(InputRole::features),
                   *labels = family.input(InputRole::labels);
  check(features && labels, "a {} wants no features with labels", family.title);
  in_size_ = job.model.elements_of(*features);
  out_size_ = job.model.integer(labels->classes);
  vocabulary_.format = DataFormat::automatic;
}

void GeneratedDataset::read(Split split, int64_t first, int64_t count, Tensor inputs,
                            Tensor targets) const {
  check(inputs.dtype == DType::f32 && targets.dtype == DType::i32 &&
            inputs.elements() == count * in_size_ && targets.elements() == count,
        "{} samples of {} features are read into {} and {}", count, in_size_,
        to_string(inputs.shape), to_string(targets.shape));
  const PhiloxKey key = {static_cast<uint32_t>(seed_), static_cast<uint32_t>(seed_ >> 32)};
  if (split == Split::validation) first += kFirstValidation;
  auto* features = inputs.as<float>();
  auto* labels = targets.as<int32_t>();
  const int64_t groups = (count + kTogether - 1) / kTogether;
  const auto fill = [&](int64_t group) {
    const int64_t s = group * kTogether;
    const int64_t n = std::min(kTogether, count - s);
    const float* rows[kTogether];
    for (int64_t i = 0; i < kTogether; ++i) {
      float* row = features + (s + std::min(i, n - 1)) * in_size_;
      if (i < n) fill_features(key, static_cast<uint64_t>(first + s + i), row, in_size_);
      rows[i] = row;
    }
    // Each sum is a chain of dependent additions in index order; four chains hide their latency.
    double sums[kTogether] = {};
    for (int64_t j = 0; j < in_size_; ++j)
      for (int64_t i = 0; i < kTogether; ++i) {
        const double x = rows[i][j];
        sums[i] += x * x;
      }
    for (int64_t i = 0; i < n; ++i)
      labels[s + i] = static_cast<int32_t>(static_cast<int64_t>(sums[i]) % out_size_);
  };
  run_ranges(count * in_size_ > 1 << 15 ? thread_count() : 1, groups,
             [&](int64_t begin, int64_t end) {
               for (int64_t group = begin; group < end; ++group) fill(group);
             });
}

std::string GeneratedDataset::summary() const {
  return fmt::format("made-up samples of {} features and {} classes, seed {}", in_size_, out_size_,
                     seed_);
}

}  // namespace dstrain
