// WeightMap: how the weights of a model are called and laid out in weight files, where that is not how its program has
// them. Data of a family (model/family.h); files are read and written by it (runtime/storage/weight_layout.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace dstrain {

// Rows of a tensor in a weight file. Rows are the first dimension. A tensor that several parts have is split; the parts
// must cover it.
struct WeightPart {
  std::string tensor;       // its name in the file
  int64_t rows = 0;         // how many; 0: all of the parameter's that are left
  int64_t first = 0;        // the tensor's row where they begin
  bool transposed = false;  // the file has the tensor's columns as rows (two dimensions)
};

// A parameter in weight files: the rows of its parts, one part after the other. More than one part: it is joined.
struct WeightEntry {
  std::string parameter;
  std::vector<WeightPart> parts;
};

// A parameter without an entry is the tensor of its name.
using WeightMap = std::vector<WeightEntry>;

// A tensor that files may have by another name instead.
struct StoredName {
  std::string tensor, stored;
};

// A tensor in a file of another format than safetensors.
struct StoredWeight {
  std::string name;
  std::string dtype;  // by the name that safetensors files have: "F32"
  std::vector<int64_t> shape;
  int64_t begin = 0, bytes = 0;  // of the file
};

// A tensor of a model that is no weight: it goes into files as it is.
struct KeptTensor {
  std::string name;
  std::string dtype;  // by the name that safetensors files have: "I64"
  std::vector<int64_t> shape;
  std::string bytes;  // of all elements
};

// What weight files of other programs may have otherwise.
struct ForeignNames {
  std::string prefix = {};  // of names, which all tensors of a file may lack
  std::vector<std::string> ignored =
      {};  // patterns of names, without the prefix, that nothing reads
  std::vector<StoredName> stored_names = {};  // read where a file lacks the tensor's own name
  // Tensors that files have with `rows` rows where the model has more. Each further row is the mean of these, as those of
  // transformers' resize_token_embeddings() are but for its noise, whose variance is 1e-9 of the rows'. 0: there are none.
  struct GrownTables {
    std::vector<std::string> tensors = {};
    int64_t rows = 0;
  };
  GrownTables grown = {};
  // Tensors that files may lack. They keep the values that they have before weights are read.
  std::vector<std::string> fresh = {};
  // The file that has the weights in another format, and what is in it.
  std::string archive = {};
  std::vector<StoredWeight> tensors = {};
};

}  // namespace dstrain
