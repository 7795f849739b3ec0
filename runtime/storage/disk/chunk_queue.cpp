#include "runtime/storage/disk/chunk_queue.h"

#include <algorithm>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {

void ChunkQueue::add(const std::shared_ptr<DiskOperation>& operation) {
  const std::lock_guard lock(mutex_);
  operation->last_report = DiskClock::now();
  if (operation->settled()) return;  // of no bytes
  waiting_.push_back(operation);
  chunks_ready_.notify_all();
}

bool ChunkQueue::take(size_t most, bool wait, std::vector<DiskChunk>& chunks) {
  std::unique_lock lock(mutex_);
  if (wait) chunks_ready_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
  if (closed_) return false;
  for (size_t i = 0; i < most && !waiting_.empty(); ++i) {
    DiskOperation& op = *waiting_.front();
    const int64_t address = op.address + op.taken;
    const int64_t bytes = chunk_size_(address, op.bytes - op.taken);
    if (op.taken == 0) op.last_report = DiskClock::now();
    chunks.push_back({waiting_.front(), address, bytes, op.data + op.taken});
    op.in_flight.push_back(address);
    op.taken += bytes;
    if (op.taken == op.bytes) waiting_.pop_front();
  }
  return true;
}

void ChunkQueue::report(const DiskChunk& chunk, std::string error) {
  const std::lock_guard lock(mutex_);
  DiskOperation& op = *chunk.operation;
  last_report_ = op.last_report = DiskClock::now();
  op.in_flight.erase(std::ranges::find(op.in_flight, chunk.address));
  if (!error.empty() && op.error.empty()) {
    op.error = std::move(error);
    std::erase(waiting_, chunk.operation);
  }
  if (op.settled()) settled_.notify_all();
}

DiskClock::time_point ChunkQueue::latest_end(const DiskOperation& operation) const {
  const bool all_taken = operation.taken == operation.bytes || !operation.error.empty();
  return limit_ +
         (all_taken ? operation.last_report : std::max(operation.last_report, last_report_));
}

bool ChunkQueue::over(const DiskOperation& operation, DiskClock::time_point now) const {
  if (operation.settled()) {
    if (!operation.error.empty()) throw RunError(operation.error);
    return true;
  }
  if (now < latest_end(operation)) return false;
  const int64_t address = operation.in_flight.empty() ? operation.address + operation.taken
                                                      : operation.in_flight.front();
  fail_run("cannot {}: the drive has not answered for {} s; see `dmesg`, and name another drive",
           describe_(operation, address), std::chrono::duration<double>(limit_).count());
}

bool ChunkQueue::done(const DiskOperation& operation) {
  const std::lock_guard lock(mutex_);
  return over(operation, DiskClock::now());
}

void ChunkQueue::wait(const DiskOperation& operation) {
  std::unique_lock lock(mutex_);
  while (!over(operation, DiskClock::now())) settled_.wait_until(lock, latest_end(operation));
}

void ChunkQueue::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  waiting_.clear();
  chunks_ready_.notify_all();
}

}  // namespace dstrain
