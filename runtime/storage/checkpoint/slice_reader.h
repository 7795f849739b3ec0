// SliceReader: reads ranges of a checkpoint's tensors from the slices that hold them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/core/files/input_file.h"
#include "runtime/storage/checkpoint/checkpoint_choice.h"

namespace dstrain {

class SliceReader {
 public:
  // The caller must keep `found` alive.
  explicit SliceReader(const FoundCheckpoint& found)
      : found_(found), files_(found.manifest.files.size()) {}

  // Reads elements [begin, begin + count) to `to`, in the tensor's dtype, and verifies the checksum of each block. Throws
  // UserError if they are damaged.
  void read(const CheckpointTensor& tensor, int64_t begin, int64_t count, std::byte* to);

 private:
  const InputFile& file(int index);
  // Reads bytes [from, until) of the slice.
  void read_bytes(const CheckpointTensor& tensor, const CheckpointSlice& slice, int64_t from,
                  int64_t until, std::byte* to);
  void read_block(const CheckpointTensor& tensor, const CheckpointSlice& slice, int64_t block,
                  int64_t bytes, std::byte* to);

  const FoundCheckpoint& found_;
  std::vector<std::optional<InputFile>> files_;
  std::vector<std::byte> scratch_;
};

}  // namespace dstrain
