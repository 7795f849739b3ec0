// ReferenceFile: OUTPUT/cache/references.bin, the log-probabilities that the initial weights of a run give to its samples
// (docs/formats.md). It is written whole again and again while they are measured, so that a run that ends meanwhile goes on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace dstrain {

class ReferenceFile {
 public:
  // key: a checksum of what the values depend on.
  ReferenceFile(std::string path, uint64_t key) : path_(std::move(path)), key_(key) {}

  const std::string& path() const { return path_; }
  // Returns the values that have been measured so far, at most `count` of them; none if there is no such file, if it is of
  // another key, or if it is damaged.
  std::vector<float> read(int64_t count) const;
  // Replaces the file by one with these values. Throws RunError.
  void write(std::span<const float> values) const;

 private:
  std::string path_;
  uint64_t key_;
};

}  // namespace dstrain
