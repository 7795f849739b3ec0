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

  // Reads elements [begin, begin + count) of the whole tensor to `to`, in its dtype, and verifies the checksum of each
  // block. The last block of each part of a tensor is kept, so that many short ranges in ascending order read each block
  // once. Throws UserError if they are damaged.
  void read(const CheckpointTensor& tensor, int64_t begin, int64_t count, std::byte* to);

 private:
  // A block of a slice that has been read and checked.
  struct Block {
    int file = 0;
    int64_t at = -1;  // byte in the file
    std::vector<std::byte> bytes{};
  };
  const InputFile& file(int index);
  // Reads bytes [from, until) of the slice.
  void read_bytes(const CheckpointTensor& tensor, const CheckpointSlice& slice, int64_t from,
                  int64_t until, std::byte* to);
  void read_block(const CheckpointTensor& tensor, const CheckpointSlice& slice, int64_t block,
                  int64_t bytes, std::byte* to);
  // Returns the bytes of a block.
  const std::byte* kept_block(const CheckpointTensor& tensor, const CheckpointSlice& slice,
                              int64_t block, int64_t bytes);

  const FoundCheckpoint& found_;
  std::vector<std::optional<InputFile>> files_;
  std::vector<Block> kept_;  // the last one of each part
};

}  // namespace dstrain
