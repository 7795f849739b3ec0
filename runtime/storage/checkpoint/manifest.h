// Manifest: manifest.json of a checkpoint, which says for every tensor of the register where its
// slices lie. {"checksum": XXH3-64 of content's compact text, "content": {"format", "version", "step",
// "samples", "line", "facts", "summary", "files": [{"name", "bytes"}], "tensors": [{"name", "slot", "dtype", "shape", "slices":
// [{"begin", "elements", "file", "offset", "checksums"}]}]}}. Numbers of elements count from the
// tensor's first; a slice has one checksum per 4 MiB, so that a part of it can be read and checked.
// Stands on nlohmann_json. Invariant: what parses is consistent in itself; whether it is
// whole is check_coverage's question.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/tensor.h"
#include "runtime/storage/checkpoint/lineage.h"

namespace dstrain {

inline constexpr int64_t kChecksumBlock = int64_t{4} << 20;
inline constexpr std::string_view kManifestName = "manifest.json";

struct CheckpointSlice {
  int64_t begin = 0, elements = 0;
  int file = 0;        // index into files
  int64_t offset = 0;  // bytes
  std::vector<uint64_t> checksums;
};

struct CheckpointTensor {
  std::string name, slot;
  DType dtype = DType::f32;
  Shape shape;
  std::vector<CheckpointSlice> slices;  // by begin
};

struct CheckpointFile {
  std::string name;
  int64_t bytes = 0;
};

// What a checkpoint is, beside its values.
struct CheckpointLabel {
  int64_t step = 0;
  int64_t samples = -1;  // of the training data, before the next step; -1: not kept
  Lineage line = {};
  // What the numbers of the run that saved it depend on, by name; empty: not kept.
  std::map<std::string, std::string> facts = {};
  std::string summary = {};  // one line for readers of the manifest
};

struct Manifest {
  CheckpointLabel label;
  std::vector<CheckpointFile> files;  // one per rank that saved
  std::vector<CheckpointTensor> tensors;
};

std::string manifest_text(const Manifest& manifest);

// Throws UserError naming `path` and the tensor where the text is damaged or from another version.
Manifest parse_manifest(std::string_view text, const std::string& path);

// Adds the files and slices of `part`, another rank's, to `whole`. A slice that is there already is
// left out: replicas hold the same.
void merge_manifest(Manifest& whole, const Manifest& part);

// What is wrong with the slices of a tensor, or empty where they hold every element exactly once.
std::string coverage_problem(const Manifest& manifest, const CheckpointTensor& tensor);

}  // namespace dstrain
