// The tensors that an archive stores: parameters, buffers and constants, by the configuration files beside them. Only raw
// bytes are read; tensors that PyTorch has pickled are refused.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/exported/graph/scalar_type.h"
#include "runtime/core/formats/zip_archive.h"

namespace dstrain::exported {

// A tensor in an archive. Its elements are at `offset` + sum of index * stride in a storage, which is an entry of the
// archive; tensors may share one. A storage without bytes is that of a model exported on the meta device.
struct StoredTensor {
  std::string name;  // in the module's state: "h.0.ln1.weight"
  ScalarType type = ScalarType::f32;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;  // in elements
  const ZipEntry* storage = nullptr;
  bool is_parameter = false;
  bool is_constant = false;  // among the constants, not the weights
  bool is_absent = false;    // the archive has no values
  int group = 0;             // tensors of one number are one tensor under several names

  int64_t elements() const;
  // Whether the elements lie one after the other, the last dimension first.
  bool is_contiguous() const;
  // Returns where a contiguous tensor begins in the file of the archive.
  int64_t file_offset() const { return storage->offset + offset * size_of(type); }
};

// Returns the tensors by name. `folder` is the first part of all names in the archive, `model` the name of the program.
// The tensors refer to entries of `archive`. Throws UserError if a tensor reaches outside of its storage, is pickled, or
// shares a part of its elements with another.
std::vector<StoredTensor> read_stored_tensors(const ZipArchive& archive, const std::string& folder,
                                              const std::string& model);

// Reads the elements one after the other, the last dimension first. The caller must not ask for an absent tensor.
std::string read_elements(const ZipArchive& archive, const StoredTensor& tensor);

}  // namespace dstrain::exported
