// Manifest: manifest.json of a checkpoint, which gives the place of every slice of every tensor
// (docs/formats.md). A slice has one checksum per 4 MiB, so that a part of it can be read and checked.
// Invariant: the content of a parsed manifest is consistent; whether the slices of a tensor cover it is
// checked by coverage_error.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/core/tensor.h"
#include "runtime/ir/tensor_part.h"
#include "runtime/storage/checkpoint/lineage.h"

namespace dstrain {

inline constexpr int64_t kChecksumBlock = int64_t{4} << 20;
inline constexpr std::string_view kManifestName = "manifest.json";

// A piece of a tensor in a checkpoint file: elements [begin, begin + elements), from byte `offset` on. There
// is a checksum for each kChecksumBlock bytes. Where a tensor group divided the tensor, the elements are those of the memory
// of `part`, with its padding.
struct CheckpointSlice {
  int64_t begin = 0, elements = 0;
  int file = 0;        // index into Manifest::files
  int64_t offset = 0;  // bytes
  std::vector<uint64_t> checksums;
  TensorPart part = {};
};

// A tensor of the state register and its slices.
struct CheckpointTensor {
  std::string name, slot;
  DType dtype = DType::f32;
  Shape shape;
  std::vector<CheckpointSlice> slices;  // by part and begin
};

// A file of a checkpoint.
struct CheckpointFile {
  std::string name;
  int64_t bytes = 0;
};

// The best validation of a run so far (dstrain.load_best_model_at_end, early_stopping_patience).
struct BestValidation {
  std::string metric = {};  // that is compared
  int64_t step = 0;         // that it followed
  double value = 0;
  int64_t without_better = 0;  // validations since then that early_stopping_patience counts
  bool operator==(const BestValidation&) const = default;
};

// The facts about the run that a manifest records beside the tensors.
struct CheckpointLabel {
  int64_t step = 0;
  int64_t samples = -1;  // training samples read before the next step; -1: not recorded
  Lineage lineage = {};
  // What the run's numbers depend on, by name; empty: not recorded.
  std::map<std::string, std::string> facts = {};
  // Only dstrain.save_last asked for it, at the end of a run: it goes where a newer one is saved or another run begins.
  bool end = false;
  std::optional<BestValidation> best = {};
};

// The content of a manifest, the file that describes a checkpoint.
struct Manifest {
  CheckpointLabel label;
  std::vector<CheckpointFile> files;  // one per rank that saved
  std::vector<CheckpointTensor> tensors;
};

// Returns the text of the file.
std::string manifest_text(const Manifest& manifest);

// Returns the content of the text. Throws UserError, which names `path` and the tensor, if the text is
// damaged or of another version.
Manifest parse_manifest(std::string_view text, const std::string& path);

// Adds the files and slices of `part`, another rank's, to `whole`. A slice that `whole` has already is left
// out: replicas hold the same values.
void merge_manifest(Manifest& whole, const Manifest& part);

// Sorts the slices of a tensor by part and begin.
void sort_slices(CheckpointTensor& tensor);

// Returns which elements of a tensor, or of its parts, are missing or stand in two slices, or that the slices are of parts
// of several divisions; an empty string if every element stands in exactly one slice.
std::string coverage_error(const Manifest& manifest, const CheckpointTensor& tensor);

}  // namespace dstrain
