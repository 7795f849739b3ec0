#include "runtime/storage/checkpoint/slice_reader.h"

#include <algorithm>
#include <cstring>

#include "runtime/core/checksum.h"
#include "runtime/core/error.h"

namespace dstrain {

void SliceReader::read(const CheckpointTensor& tensor, int64_t begin, int64_t count,
                       std::byte* to) {
  const int64_t size = size_of(tensor.dtype);
  const auto end_of = [](const CheckpointSlice& slice) { return slice.begin + slice.elements; };
  for (auto first = tensor.slices.begin(); first != tensor.slices.end();) {
    const auto end = std::ranges::upper_bound(first, tensor.slices.end(), first->part.part, {},
                                              [](const auto& slice) { return slice.part.part; });
    for_runs_within(first->part, tensor.shape, begin, count, [&](const PartRun& run) {
      const int64_t last = run.held + run.count;
      auto slice = std::ranges::upper_bound(first, end, run.held, {}, end_of);
      for (; slice != end && slice->begin < last; ++slice) {
        const int64_t from = std::max(run.held, slice->begin),
                      until = std::min(last, end_of(*slice));
        read_bytes(tensor, *slice, (from - slice->begin) * size, (until - slice->begin) * size,
                   to + (run.whole + from - run.held - begin) * size);
      }
    });
    first = end;
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
    const std::byte* const kept = kept_block(tensor, slice, block, last - first);
    const int64_t a = std::max(first, from), b = std::min(last, until);
    std::memcpy(to + (a - from), kept + (a - first), static_cast<size_t>(b - a));
  }
}

const std::byte* SliceReader::kept_block(const CheckpointTensor& tensor,
                                         const CheckpointSlice& slice, int64_t block,
                                         int64_t bytes) {
  const int64_t at = slice.offset + block * kChecksumBlock;
  // Ranges of the whole tensor come from each part in turn, and from each in ascending order.
  const auto part = static_cast<size_t>(slice.part.part);
  if (kept_.size() <= part) kept_.resize(part + 1);
  Block& kept = kept_[part];
  if (kept.file != slice.file || kept.at != at) {
    kept.at = -1;  // until it has been read and checked
    kept.bytes.resize(static_cast<size_t>(bytes));
    read_block(tensor, slice, block, bytes, kept.bytes.data());
    kept.file = slice.file;
    kept.at = at;
  }
  return kept.bytes.data();
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
