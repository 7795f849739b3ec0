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
constexpr std::chrono::milliseconds kLookForMore{
    20};                         // while the drive is slow and has room for requests
constexpr int kMostTries = 100;  // to set up a queue, ten milliseconds apart
constexpr std::chrono::milliseconds kTryPause{10};

bool put_off(int64_t result) {
  return result == -EAGAIN || result == -EINTR;
}

bool is_aligned(const std::byte* data, int64_t offset, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(data) % kDiskBlock == 0 && offset % kDiskBlock == 0 &&
         bytes % kDiskBlock == 0;
}

// Sets up a queue. The kernel returns those of processes that have ended a little later than they end.
int set_up_queue(IoCalls& calls, int depth, io_context_t* context) {
  for (int tries = 1;; ++tries) {
    const int status = calls.setup(depth, context);
    if (status != -EAGAIN || tries == kMostTries) return status;
    std::this_thread::sleep_for(kTryPause);
  }
}

}  // namespace

struct IoWorker::Request {
  iocb control{};
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
  // Through the page cache a request is complete when it has been submitted, so that more requests would only take chunks
  // away from other workers.
  const auto depth = static_cast<size_t>(files.direct() ? config.queue_depth : 1);
  const int status = set_up_queue(files.calls(), static_cast<int>(depth), &context_);
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
    requests_.push_back(std::make_unique<Request>());
    free_.push_back(requests_.back().get());
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
    Request& request = *free_.back();
    free_.pop_back();
    request.chunk = std::move(chunk);
    request.retries = 0;
    try {
      prepare(request);
      ready_.push_back(&request);
    } catch (const std::exception& e) {  // no memory
      finish(request, e.what());
    }
  }
  return open;
}

void IoWorker::prepare(Request& request) {
  const DiskChunk& chunk = request.chunk;
  const DiskPlace place = layout_.place(chunk.address);
  request.file = place.file;
  request.offset = place.offset;
  request.bytes = chunk.bytes;
  request.done = 0;
  request.memory = chunk.data;
  if (!files_.direct() || is_aligned(chunk.data, place.offset, chunk.bytes)) return;
  request.offset = place.offset / kDiskBlock * kDiskBlock;
  request.bytes = disk_blocks_up(place.offset + chunk.bytes) - request.offset;
  if (request.copy.bytes() == 0)
    request.copy = Memory::anonymous(block_bytes_, "a copy of unaligned memory for the disk store");
  request.memory = request.copy.data();
  if (!chunk.operation->writes) return;  // a write begins at a block, so only its end is padded
  std::memcpy(request.memory, chunk.data, static_cast<size_t>(chunk.bytes));
  std::memset(request.memory + chunk.bytes, 0, static_cast<size_t>(request.bytes - chunk.bytes));
}

void IoWorker::submit() {
  std::vector<iocb*> controls;
  std::vector<int64_t> sizes(static_cast<size_t>(files_.count()), -1);
  for (Request* request : std::exchange(ready_, {})) {
    // A file that someone has truncated would take a write and give zeros later.
    int64_t& size = sizes[static_cast<size_t>(request->file)];
    if (size == -1) size = files_.calls().size(files_.descriptor(request->file));
    if (size < files_.bytes_each()) {
      finish(*request, failure(*request, 0));
      continue;
    }
    const auto prepare_request = request->chunk.operation->writes ? io_prep_pwrite : io_prep_pread;
    prepare_request(
        &request->control, files_.descriptor(request->file), request->memory + request->done,
        static_cast<size_t>(request->bytes - request->done), request->offset + request->done);
    request->control.data = request;
    controls.push_back(&request->control);
  }
  if (!config_.single_submit) return submit_some(controls);
  for (iocb*& control : controls) submit_some({&control, 1});
}

void IoWorker::submit_some(std::span<iocb*> controls) {
  int pauses = 0;
  while (!controls.empty()) {
    const int result = files_.calls().submit(context_, controls);
    Request& first = *static_cast<Request*>(controls.front()->data);
    if (result > 0) {
      for (const iocb* control : controls.first(static_cast<size_t>(result)))
        static_cast<Request*>(control->data)->in_flight = true;
      in_flight_ += result;
      controls = controls.subspan(static_cast<size_t>(result));
    } else if ((result == 0 || put_off(result)) && pauses < kMostRetries) {
      ++pauses;
      if (in_flight_ > 0)
        collect();
      else
        std::this_thread::sleep_for(kRetryPause);
    } else {  // of the first request
      finish(first, failure(first, result));
      controls = controls.subspan(1);
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
    for (const auto& request : requests_)
      if (request->in_flight) complete(*request, count);
    files_.calls().setup(static_cast<int>(requests_.size()),
                         &context_);  // submit() reports if it fails
    return;
  }
  for (int i = 0; i < count; ++i) {
    const io_event& event = events_[static_cast<size_t>(i)];
    complete(*static_cast<Request*>(event.data), static_cast<int64_t>(event.res));
  }
}

void IoWorker::complete(Request& request, int64_t result) {
  request.in_flight = false;
  --in_flight_;
  if (put_off(result) && request.retries++ < kMostRetries) return ready_.push_back(&request);
  const int64_t left = request.bytes - request.done;
  if (result == left) return finish(request, "");
  // The rest of a request that was cut short goes on at a whole block.
  const int64_t moved = files_.direct() ? result / kDiskBlock * kDiskBlock : result;
  if (result < 0 || result > left || moved == 0) return finish(request, failure(request, result));
  request.done += moved;
  ready_.push_back(&request);
}

void IoWorker::finish(Request& request, std::string error) {
  const DiskChunk chunk = std::exchange(request.chunk, {});
  if (error.empty() && !chunk.operation->writes && request.memory == request.copy.data()) {
    const int64_t before = layout_.place(chunk.address).offset - request.offset;
    std::memcpy(chunk.data, request.memory + before, static_cast<size_t>(chunk.bytes));
  }
  free_.push_back(&request);
  queue_.report(chunk, std::move(error));
}

std::string IoWorker::failure(const Request& request, int64_t result) const {
  const std::string what = fmt::format(
      "{} {} bytes at offset {} of {}", request.chunk.operation->writes ? "write" : "read",
      request.bytes - request.done, request.offset + request.done, files_.name(request.file));
  const int64_t size = files_.calls().size(files_.descriptor(request.file));
  if (size >= 0 && size < files_.bytes_each())
    return fmt::format(
        "cannot {}: another program has truncated the file to {} bytes ({} were reserved); keep "
        "other programs away from this directory",
        what, size, files_.bytes_each());
  if (result < 0) return disk_error(what, static_cast<int>(-result));
  return fmt::format(
      "cannot {}: the drive moved {} of {} bytes; see `dmesg`, and name another drive", what,
      result, request.bytes - request.done);
}

}  // namespace dstrain
