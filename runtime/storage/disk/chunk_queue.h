// ChunkQueue: the reads and writes of a disk store that are not done yet, in the order of their requests. Workers take
// them chunk by chunk and report what became of each. Thread-safe.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/storage/disk/disk_layout.h"

namespace dstrain {

using DiskClock = std::chrono::steady_clock;

// One read or write of bytes of an extent. The queue's lock guards the second half.
struct DiskOperation {
  bool writes = false;
  int extent = 0;
  int64_t address = 0;
  int64_t bytes = 0;
  std::byte* data = nullptr;

  int64_t taken = 0;                 // bytes that workers have taken
  std::vector<int64_t> in_flight{};  // addresses of chunks that workers have and have not reported
  std::string error{};               // the first one
  DiskClock::time_point last_report{};  // when it was begun, or a chunk of it was reported
  bool settled() const { return in_flight.empty() && (taken == bytes || !error.empty()); }
};

// A part of an operation that one system call moves.
struct DiskChunk {
  std::shared_ptr<DiskOperation> operation;
  int64_t address = 0;
  int64_t bytes = 0;
  std::byte* data = nullptr;
};

class ChunkQueue {
 public:
  // Returns how many of `bytes` at `address` the next chunk has.
  using ChunkSize = std::function<int64_t(int64_t address, int64_t bytes)>;
  // Returns an operation's name for messages: "read 4096 bytes at offset 0 of FILE (tensor w)".
  using Describe = std::function<std::string(const DiskOperation&, int64_t address)>;

  ChunkQueue(ChunkSize chunk_size, Describe describe, std::chrono::nanoseconds limit)
      : chunk_size_(std::move(chunk_size)), describe_(std::move(describe)), limit_(limit) {}

  // Appends an operation. Its members of the second half are as they are by default.
  void add(const std::shared_ptr<DiskOperation>& operation);

  // Appends up to `most` chunks to `chunks`. If there are none, waits for one if `wait`. Returns false if the queue is
  // closed.
  bool take(size_t most, bool wait, std::vector<DiskChunk>& chunks);
  // Reports that a chunk is complete, or has failed if `error` is not empty.
  void report(const DiskChunk& chunk, std::string error);

  // Returns whether the operation is over. Throws RunError if it failed or is late.
  bool done(const DiskOperation& operation);
  // Waits until the operation is over. Throws RunError if it failed. If nothing of it has been completed within the
  // limit, throws RunError although the system may still use its memory.
  void wait(const DiskOperation& operation);

  // Gives out no more chunks, and ends the waiting of workers.
  void close();

 private:
  // Both: the caller has the lock.
  DiskClock::time_point latest_end(const DiskOperation& operation) const;
  bool over(const DiskOperation& operation, DiskClock::time_point now) const;

  const ChunkSize chunk_size_;
  const Describe describe_;
  const std::chrono::nanoseconds limit_;
  std::mutex mutex_;
  std::condition_variable chunks_ready_, settled_;
  std::deque<std::shared_ptr<DiskOperation>> waiting_;  // with bytes that no worker has taken
  DiskClock::time_point last_report_{};
  bool closed_ = false;
};

}  // namespace dstrain
