// ReferenceFile: OUTPUT/cache/references.bin, the log-probabilities that the initial weights of a run give to its samples
// (docs/formats.md). It is written whole again and again while they are measured, so that a run that ends meanwhile goes on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dstrain {

// Checksums of what the values depend on: the data and the model, and the weights. weights: 0 where the weights of a run's
// beginning are not asked for any more.
struct ReferenceKey {
  uint64_t data = 0, weights = 0;
};

class ReferenceFile {
 public:
  ReferenceFile(std::string path, const ReferenceKey& key) : path_(std::move(path)), key_(key) {}

  const std::string& path() const { return path_; }
  // Where the weights were not asked for, read() sets which weights the file's values are of.
  const ReferenceKey& key() const { return key_; }
  // Returns the values that have been measured so far, at most `count` of them; none if there is no such file, if it is of
  // another key, or if it is damaged.
  std::vector<float> read(int64_t count);
  // Replaces the file by one with these values. Throws RunError.
  void write(std::span<const float> values) const;

 private:
  std::string path_;
  ReferenceKey key_;
};

}  // namespace dstrain
