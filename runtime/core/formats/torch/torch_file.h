// TorchFile: what torch.save has written, without Python: a zip archive of a pickle and the bytes of the tensors, as PyTorch
// writes since 1.6. Files may be hostile (zip_archive.h, pickle.h): a tensor that is returned lies within its storage, and
// has no more elements than that. Errors are UserErrors that name the file.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "runtime/core/files/input_file.h"
#include "runtime/core/formats/pickle/pickle.h"
#include "runtime/core/formats/safetensors.h"
#include "runtime/core/formats/zip_archive.h"

namespace dstrain {

// A tensor in a file: its elements are in a storage of the file, as strided.h says.
struct TorchTensor {
  SafetensorsType type;
  std::vector<int64_t> sizes, strides;
  int64_t offset = 0;   // in elements
  int64_t storage = 0;  // byte of the file

  int64_t elements() const;
  bool is_contiguous() const;
};

class TorchFile {
 public:
  // Opens the file and reads its pickle. Throws UserError if torch.save has not written it, or a PyTorch before 1.6 has.
  explicit TorchFile(const std::string& path);

  const std::string& path() const { return archive_.path(); }
  // Returns what has been saved. The file must outlive it.
  PickleValue root() const { return pickle_->root(); }

  // Returns whether a value is a tensor, of any kind.
  static bool is_tensor(PickleValue value);
  // Returns a tensor. Throws UserError if the value is none, or a tensor of a kind or type that safetensors files do not
  // have, or not within the file.
  TorchTensor tensor(PickleValue value) const;

 private:
  TorchTensor stored_tensor(PickleValue value, PickleValue arguments, bool has_dtype) const;
  std::string find_folder() const;

  ZipArchive archive_;
  std::string folder_;  // of all entries
  std::unique_ptr<Pickle> pickle_;
};

// Reads the elements of a tensor in their order, the last dimension first.
class TorchTensorReader {
 public:
  // `file`: the one that the tensor is in. Both must outlive the object. Throws UserError.
  TorchTensorReader(const InputFile& file, const TorchTensor& tensor);

  // Reads elements [begin, begin + count) to `to`. Throws UserError.
  void read(int64_t begin, int64_t count, char* to) const;

 private:
  const InputFile& file_;
  const TorchTensor& tensor_;
  std::string
      span_;  // of a tensor that is not contiguous: the storage from its first element to its last
};

}  // namespace dstrain
