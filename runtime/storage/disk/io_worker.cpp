#include "runtime/storage/disk/io_worker.h"

#include <fmt/core.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/storage/disk/disk_error.h"

namespace dstrain {
namespace {

constexpr int kMostRetries = 1000;  // of a request that the kernel puts off, a millisecond apart
constexpr std::chrono::milliseconds kRetryPause{1};
constexpr std::chrono::milliseconds kLookForMore{20};  // while the drive is slow and slots are free

bool put_off(int64_t result) {
  return result == -EAGAIN || result == -EINTR;
}

bool is_aligned(const std::byte* data, int64_t offset, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % kDiskBlock == 0 && offset % kDiskBlock == 0 &&
         bytes % kDiskBlock == 0;
}

}  // namespace

struct IoWorker::Slot {
  iocb request{};
  DiskChunk chunk;
  int file = 0;
  int64_t offset = 0, bytes = 0;  // what is moved, in whole blocks where that is needed
  int64_t done = 0;
  std::byte* memory = nullptr;  // of `bytes`: the caller's, or `copy`
  Memory copy;                  // for memory, places or sizes that are not aligned
  int retries = 0;
  bool in_flight = false;
};

IoWorker::IoWorker(ChunkQueue& queue, const SwapFiles& files, const DiskLayout& layout,
                   const AioConfig& config, int64_t block_bytes)
    : queue_(queue), files_(files), layout_(layout), config_(config), block_bytes_(block_bytes) {
  // Through the page cache a request is complete when it has been submitted, so that more slots would only take chunks
  // away from other workers.
  const auto depth = static_cast<size_t>(files.direct() ? config.queue_depth : 1);
  const int status = files.calls().setup(static_cast<int>(depth), &context_);
  if (status == -EAGAIN)
    fail_run(
        "the kernel has no queue of {} requests left for aio.queue_depth: raise the limit "
        "(sysctl fs.aio-max-nr), or lower aio.queue_depth or aio.intra_op_parallelism",
        depth);
  if (status < 0)
    fail_run(
        "cannot set up asynchronous I/O (io_setup): {}; the kernel or the container does not "
        "allow it",
        std::strerror(-status));
  for (size_t i = 0; i < depth; ++i) {
    slots_.push_back(std::make_unique<Slot>());
    free_.push_back(slots_.back().get());
  }
  events_.resize(depth);
  thread_ = std::thread([this] { work(); });
}

IoWorker::~IoWorker() {
  thread_.join();
  files_.calls().destroy(context_);
}

void IoWorker::work() {
  while (take_chunks()) {
    submit();
    if (in_flight_ > 0) collect();
  }
  while (in_flight_ > 0 || !ready_.empty()) {
    submit();
    if (in_flight_ > 0) collect();
  }
}

bool IoWorker::take_chunks() {
  const bool idle = in_flight_ == 0 && ready_.empty();
  if (free_.empty() || (!config_.overlap_events && !idle)) return true;
  taken_.clear();
  const bool open = queue_.take(free_.size(), idle, taken_);
  for (DiskChunk& chunk : taken_) {
    Slot& slot = *free_.back();
    free_.pop_back();
    slot.chunk = std::move(chunk);
    slot.retries = 0;
    try {
      prepare(slot);
      ready_.push_back(&slot);
    } catch (const std::exception& e) {  // no memory
      finish(slot, e.what());
    }
  }
  return open;
}

void IoWorker::prepare(Slot& slot) {
  const DiskChunk& chunk = slot.chunk;
  const DiskPlace place = layout_.place(chunk.address);
  slot.file = place.file;
  slot.offset = place.offset;
  slot.bytes = chunk.bytes;
  slot.done = 0;
  slot.memory = chunk.data;
  if (!files_.direct() || is_aligned(chunk.data, place.offset, chunk.bytes)) return;
  slot.offset = place.offset / kDiskBlock * kDiskBlock;
  slot.bytes = disk_blocks_up(place.offset + chunk.bytes) - slot.offset;
  if (slot.copy.bytes() == 0)
    slot.copy = Memory::anonymous(block_bytes_, "a copy of unaligned memory for the disk store");
  slot.memory = slot.copy.data();
  if (!chunk.operation->writes) return;  // a write begins at a block, so only its end is padded
  std::memcpy(slot.memory, chunk.data, static_cast<size_t>(chunk.bytes));
  std::memset(slot.memory + chunk.bytes, 0, static_cast<size_t>(slot.bytes - chunk.bytes));
}

void IoWorker::submit() {
  std::vector<iocb*> requests;
  std::vector<int64_t> sizes(static_cast<size_t>(files_.count()), -1);
  for (Slot* slot : std::exchange(ready_, {})) {
    // A file that someone has truncated would take a write and give zeros later.
    int64_t& size = sizes[static_cast<size_t>(slot->file)];
    if (size == -1) size = files_.calls().size(files_.descriptor(slot->file));
    if (size < files_.bytes_each()) {
      finish(*slot, failure(*slot, 0));
      continue;
    }
    const auto prepare_request = slot->chunk.operation->writes ? io_prep_pwrite : io_prep_pread;
    prepare_request(&slot->request, files_.descriptor(slot->file), slot->memory + slot->done,
                    static_cast<size_t>(slot->bytes - slot->done), slot->offset + slot->done);
    slot->request.data = slot;
    requests.push_back(&slot->request);
  }
  if (!config_.single_submit) return submit_some(requests);
  for (iocb*& request : requests) submit_some({&request, 1});
}

void IoWorker::submit_some(std::span<iocb*> requests) {
  int pauses = 0;
  while (!requests.empty()) {
    const int result = files_.calls().submit(context_, requests);
    Slot& first = *static_cast<Slot*>(requests.front()->data);
    if (result > 0) {
      for (const iocb* request : requests.first(static_cast<size_t>(result)))
        static_cast<Slot*>(request->data)->in_flight = true;
      in_flight_ += result;
      requests = requests.subspan(static_cast<size_t>(result));
    } else if ((result == 0 || put_off(result)) && pauses < kMostRetries) {
      ++pauses;
      if (in_flight_ > 0)
        collect();
      else
        std::this_thread::sleep_for(kRetryPause);
    } else {  // of the first request
      finish(first, failure(first, result));
      requests = requests.subspan(1);
    }
  }
}

void IoWorker::collect() {
  const int least = config_.overlap_events ? 1 : in_flight_;
  const int count = files_.calls().completions(context_, least, events_, kLookForMore);
  if (count < 0 && !put_off(count)) {
    // The kernel cannot say what became of the requests. It has ended them all when the queue is gone.
    files_.calls().destroy(context_);
    context_ = nullptr;
    for (const auto& slot : slots_)
      if (slot->in_flight) complete(*slot, count);
    files_.calls().setup(static_cast<int>(slots_.size()),
                         &context_);  // submit() reports if it fails
    return;
  }
  for (int i = 0; i < count; ++i) {
    const io_event& event = events_[static_cast<size_t>(i)];
    complete(*static_cast<Slot*>(event.data), static_cast<int64_t>(event.res));
  }
}

void IoWorker::complete(Slot& slot, int64_t result) {
  slot.in_flight = false;
  --in_flight_;
  if (put_off(result) && slot.retries++ < kMostRetries) return ready_.push_back(&slot);
  const int64_t left = slot.bytes - slot.done;
  if (result == left) return finish(slot, "");
  // The rest of a request that was cut short goes on at a whole block.
  const int64_t moved = files_.direct() ? result / kDiskBlock * kDiskBlock : result;
  if (result < 0 || result > left || moved == 0) return finish(slot, failure(slot, result));
  slot.done += moved;
  ready_.push_back(&slot);
}

void IoWorker::finish(Slot& slot, std::string error) {
  const DiskChunk chunk = std::exchange(slot.chunk, {});
  if (error.empty() && !chunk.operation->writes && slot.memory == slot.copy.data()) {
    const int64_t before = layout_.place(chunk.address).offset - slot.offset;
    std::memcpy(chunk.data, slot.memory + before, static_cast<size_t>(chunk.bytes));
  }
  free_.push_back(&slot);
  queue_.report(chunk, std::move(error));
}

std::string IoWorker::failure(const Slot& slot, int64_t result) const {
  const std::string what =
      fmt::format("{} {} bytes at offset {} of {}", slot.chunk.operation->writes ? "write" : "read",
                  slot.bytes - slot.done, slot.offset + slot.done, files_.name(slot.file));
  const int64_t size = files_.calls().size(files_.descriptor(slot.file));
  if (size >= 0 && size < files_.bytes_each())
    return fmt::format(
        "cannot {}: another program has truncated the file to {} bytes ({} were reserved); keep "
        "other programs away from this directory",
        what, size, files_.bytes_each());
  if (result < 0) return disk_error(what, static_cast<int>(-result));
  return fmt::format(
      "cannot {}: the drive moved {} of {} bytes; see `dmesg`, and name another drive", what,
      result, slot.bytes - slot.done);
}

}  // namespace dstrain
