// DiskStore: tensors on drives. Each has a name and a place that is reserved from the beginning to the end. Reads and
// writes are asynchronous, several at a time, and pass the page cache by where the file system can (O_DIRECT).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/storage/disk/chunk_queue.h"
#include "runtime/storage/disk/disk_layout.h"
#include "runtime/storage/disk/io_worker.h"
#include "runtime/storage/disk/swap_files.h"

namespace dstrain {

// The tensors of one rank on its drives. Thread-safe. Operations begin in the order of their requests and end in any
// order: a read of what a write changes must be requested when the write is over. Memory at a multiple of kDiskBlock
// (Memory's is) is read and written in place; other memory, and the last odd bytes of a tensor, are copied.
class DiskStore {
 public:
  // A read or write that has been requested. It must not outlive its store; its memory must stay until it is over, also
  // if wait() throws because the drive does not answer.
  class Ticket {
   public:
    // Returns whether the operation is over. Throws RunError if it failed, with file, offset and reason.
    bool done() const { return queue_->done(*operation_); }
    // Waits until it is over. Throws as done().
    void wait() const { queue_->wait(*operation_); }

   private:
    friend class DiskStore;
    Ticket(ChunkQueue& queue, std::shared_ptr<DiskOperation> operation)
        : queue_(&queue), operation_(std::move(operation)) {}
    ChunkQueue* queue_;
    std::shared_ptr<DiskOperation> operation_;
  };

  // Returns the bytes that each of `files` files needs for these tensors.
  static int64_t bytes_of_each_file(const std::vector<DiskExtent>& extents, int files,
                                    const AioConfig& config);

  // The caller keeps `files` alive; they must be large enough. `limit`: how long a drive may take for a chunk. Throws
  // RunError if the kernel allows no more asynchronous I/O.
  DiskStore(const SwapFiles& files, std::vector<DiskExtent> extents, const AioConfig& config,
            std::chrono::nanoseconds limit);
  DiskStore(const DiskStore&) = delete;
  DiskStore& operator=(const DiskStore&) = delete;
  // Waits for the drives where requests are in flight; drops those that have not begun.
  ~DiskStore();

  // Returns the tensor of that name.
  int extent(std::string_view name) const;
  int64_t bytes(int extent) const { return extents_[static_cast<size_t>(extent)].bytes; }

  // Begin to read or write `bytes` of a tensor from byte `offset` on. A write must begin at a multiple of kDiskBlock,
  // and end at one or at the end of the tensor.
  Ticket read(int extent, int64_t offset, std::byte* data, int64_t bytes);
  Ticket write(int extent, int64_t offset, const std::byte* data, int64_t bytes);

 private:
  Ticket begin(DiskOperation operation, int64_t offset);
  int64_t chunk_size(int64_t address, int64_t bytes) const;
  std::string describe(const DiskOperation& operation, int64_t address) const;

  const SwapFiles& files_;
  const std::vector<DiskExtent> extents_;
  const int64_t block_bytes_;
  const DiskLayout layout_;
  ChunkQueue queue_;
  std::vector<std::unique_ptr<IoWorker>> workers_;
};

}  // namespace dstrain
