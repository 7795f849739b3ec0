#include "runtime/storage/checkpoint/slice_reader.h"

#include <algorithm>
#include <cstring>

#include "runtime/core/checksum.h"
#include "runtime/core/error.h"

namespace dstrain {

void SliceReader::read(const CheckpointTensor& tensor, int64_t begin, int64_t count,
                       std::byte* to) {
  const int64_t end = begin + count, size = size_of(tensor.dtype);
  for (const CheckpointSlice& slice : tensor.slices) {
    const int64_t from = std::max(begin, slice.begin);
    const int64_t until = std::min(end, slice.begin + slice.elements);
    if (from < until)
      read_bytes(tensor, slice, (from - slice.begin) * size, (until - slice.begin) * size,
                 to + (from - begin) * size);
  }
}

const InputFile& SliceReader::file(int index) {
  const auto i = static_cast<size_t>(index);
  if (!files_[i])
    files_[i] = InputFile(found_.dir + "/" + found_.manifest.files[i].name, "the checkpoint file");
  return *files_[i];
}

void SliceReader::read_bytes(const CheckpointTensor& tensor, const CheckpointSlice& slice,
                             int64_t from, int64_t until, std::byte* to) {
  const int64_t bytes = slice.elements * size_of(tensor.dtype);
  for (int64_t block = from / kChecksumBlock; block * kChecksumBlock < until; ++block) {
    const int64_t first = block * kChecksumBlock, last = std::min(first + kChecksumBlock, bytes);
    if (first >= from && last <= until) {
      read_block(tensor, slice, block, last - first, to + (first - from));
      continue;
    }
    scratch_.resize(static_cast<size_t>(kChecksumBlock));
    read_block(tensor, slice, block, last - first, scratch_.data());
    const int64_t a = std::max(first, from), b = std::min(last, until);
    std::memcpy(to + (a - from), scratch_.data() + (a - first), static_cast<size_t>(b - a));
  }
}

void SliceReader::read_block(const CheckpointTensor& tensor, const CheckpointSlice& slice,
                             int64_t block, int64_t bytes, std::byte* to) {
  const int64_t at = slice.offset + block * kChecksumBlock;
  const InputFile& from = file(slice.file);
  from.read_at(to, bytes, at);
  if (checksum_of(to, bytes) != slice.checksums[static_cast<size_t>(block)])
    fail_user(
        "{}: tensor {}/{} is damaged: the checksum of bytes [{}, {}) is not that of the manifest; "
        "use another checkpoint",
        from.path(), tensor.name, tensor.slot, at, at + bytes);
}

}  // namespace dstrain
