// ForeignWeights: what is written to a safetensors file of weights that PyTorch or DeepSpeed has saved. It says where the
// elements of each tensor are; writing reads them piece by piece.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/files/atomic_file.h"
#include "runtime/core/formats/torch/torch_file.h"

namespace dstrain {

// Elements [begin, begin + count) of a tensor in a file of torch.save, the last dimension first.
struct ForeignPiece {
  size_t file = 0;  // in ForeignWeights::files
  TorchTensor tensor;
  int64_t begin = 0, count = 0;
};

// A tensor to write: its elements are those of the pieces, one after the other.
struct ForeignTensor {
  std::string name;
  SafetensorsType type;  // that of the pieces, or F32 where theirs is F64, F16 or BF16
  std::vector<int64_t> sizes;
  std::vector<ForeignPiece> pieces;
};

struct ForeignWeights {
  std::vector<std::string> files;
  std::vector<ForeignTensor> tensors;
  std::vector<std::string> notes;  // for the user

  // Opens a file, which is kept by its path alone. Throws UserError.
  TorchFile open(const std::string& path);
  // Adds a tensor of the file that was opened last, whole. One of F64 becomes F32.
  void add(const std::string& name, const TorchTensor& tensor);
};

// Takes "module." and "_orig_mod." off the names, which wrappers of PyTorch add, where all have it, and "model." too if
// `model` is true; a note says so.
void take_off_prefixes(ForeignWeights& weights, bool model);

// Leaves out tensors that are another one by a second name, such as a head that is the embedding; a note says so. The first
// name stays, as the exported graph of a module has it.
void leave_out_second_names(ForeignWeights& weights);

// Throws UserError if a name occurs twice or cannot be in a safetensors file. `origin` names the weights.
void check_names(const ForeignWeights& weights, const std::string& origin);

// Returns the bytes of all tensors.
int64_t bytes_of(const ForeignWeights& weights);

// Writes all tensors to `file` and completes it. At most 16 MB are in memory at a time, and a tensor whose elements lie in
// another order. Throws UserError and RunError.
void write_weights(const ForeignWeights& weights, NewFile& file);

}  // namespace dstrain
