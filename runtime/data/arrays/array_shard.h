// ArrayShard: the arrays that lie together in a .safetensors, .npz or .npy file, or in a folder of .npy files. Files are
// mapped, and nothing of them is copied.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/data/arrays/element_type.h"
#include "runtime/data/file/data_file.h"

namespace dstrain {

// An array as a file has it, before anything wants to read it.
struct StoredArray {
  std::string name;                 // without ".npy"; that of a .npy file alone is "0"
  std::string type_name;            // in the file's words: "<f4", "BF16"
  std::optional<ElementType> type;  // nothing: one that models do not read
  bool fortran_order = false;       // the first of several dimensions lies together
  std::vector<int64_t> shape;       // the first dimension is the samples
  const DataFile* file = nullptr;
  int64_t begin = 0;  // of the elements in the file, in bytes
};

struct ArrayShard {
  std::string path;
  std::vector<std::unique_ptr<DataFile>> files;
  std::vector<StoredArray> arrays;  // by name, with numbers in their order

  // Returns the array of that name, or null.
  const StoredArray* find(std::string_view name) const;
  // Returns the arrays by their numbers, if their names are "0", "1", ... or NumPy's "arr_0", "arr_1", ...; else none.
  std::vector<const StoredArray*> numbered() const;
};

// Opens a file, or a folder of .npy files. Which format a file has is told from its bytes. Throws UserError if it is none
// of them, damaged, or an archive with compressed entries.
ArrayShard open_array_shard(const std::string& path);

}  // namespace dstrain
