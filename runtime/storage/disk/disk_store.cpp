#include "runtime/storage/disk/disk_store.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {

int64_t DiskStore::bytes_of_each_file(const std::vector<DiskExtent>& extents, int files,
                                      const AioConfig& config) {
  return DiskLayout(extents, files, disk_blocks_up(config.block_size)).bytes_of_each_file();
}

DiskStore::DiskStore(const SwapFiles& files, std::vector<DiskExtent> extents,
                     const AioConfig& config, std::chrono::nanoseconds limit)
    : files_(files),
      extents_(std::move(extents)),
      block_bytes_(disk_blocks_up(config.block_size)),
      layout_(extents_, files.count(), block_bytes_),
      queue_([this](int64_t address, int64_t bytes) { return chunk_size(address, bytes); },
             [this](const DiskOperation& op, int64_t address) { return describe(op, address); },
             limit) {
  check(layout_.bytes_of_each_file() <= files.bytes_each(), "a store of {} bytes in files of {}",
        layout_.bytes_of_each_file(), files.bytes_each());
  try {
    for (int64_t i = 0; i < config.intra_op_parallelism; ++i)
      workers_.push_back(std::make_unique<IoWorker>(queue_, files_, layout_, config, block_bytes_));
  } catch (...) {
    queue_.close();
    throw;
  }
}

DiskStore::~DiskStore() {
  queue_.close();
}

int DiskStore::extent(std::string_view name) const {
  const auto found = std::ranges::find(extents_, name, &DiskExtent::name);
  check(found != extents_.end(), "the disk store has no tensor {}", name);
  return static_cast<int>(found - extents_.begin());
}

DiskStore::Ticket DiskStore::read(int extent, int64_t offset, std::byte* data, int64_t bytes) {
  return begin({.writes = false, .extent = extent, .bytes = bytes, .data = data}, offset);
}

DiskStore::Ticket DiskStore::write(int extent, int64_t offset, const std::byte* data,
                                   int64_t bytes) {
  const int64_t end = offset + bytes;
  check(offset % kDiskBlock == 0 && (end % kDiskBlock == 0 || end == this->bytes(extent)),
        "a write of bytes {} to {} of tensor {} begins or ends within a disk block", offset, end,
        extents_[static_cast<size_t>(extent)].name);
  return begin({.writes = true,
                .extent = extent,
                .bytes = bytes,
                .data = const_cast<std::byte*>(data)},  // NOLINT: it is only read
               offset);
}

DiskStore::Ticket DiskStore::begin(DiskOperation operation, int64_t offset) {
  check(offset >= 0 && operation.bytes >= 0 &&
            offset + operation.bytes <= this->bytes(operation.extent),
        "bytes {} to {} are not all in tensor {}", offset, offset + operation.bytes,
        extents_[static_cast<size_t>(operation.extent)].name);
  operation.address = layout_.address(operation.extent) + offset;
  auto shared = std::make_shared<DiskOperation>(std::move(operation));
  queue_.add(shared);
  return {queue_, std::move(shared)};
}

int64_t DiskStore::chunk_size(int64_t address, int64_t bytes) const {
  const int64_t most = std::min({bytes, block_bytes_, layout_.together(address)});
  if (!files_.direct()) return most;
  // Odd bytes at the beginning and the end are chunks of their own, so that the others need no copy.
  if (const int64_t before = address % kDiskBlock; before != 0)
    return std::min(most, kDiskBlock - before);
  return most < kDiskBlock ? most : most / kDiskBlock * kDiskBlock;
}

std::string DiskStore::describe(const DiskOperation& operation, int64_t address) const {
  const DiskPlace place = layout_.place(address);
  return fmt::format("{} {} at offset {} of {}", operation.writes ? "write" : "read",
                     extents_[static_cast<size_t>(operation.extent)].name, place.offset,
                     files_.name(place.file));
}

}  // namespace dstrain
