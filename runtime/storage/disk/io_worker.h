// IoWorker: a thread that moves chunks of a disk store, with a queue of its own in the kernel.
#pragma once

#include <libaio.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/core/memory.h"
#include "runtime/storage/disk/chunk_queue.h"
#include "runtime/storage/disk/swap_files.h"

namespace dstrain {

class IoWorker {
 public:
  // The caller keeps all arguments alive. `block_bytes`: the largest chunk. Throws RunError if the kernel has no more
  // queues.
  IoWorker(ChunkQueue& queue, const SwapFiles& files, const DiskLayout& layout,
           const AioConfig& config, int64_t block_bytes);
  IoWorker(const IoWorker&) = delete;
  IoWorker& operator=(const IoWorker&) = delete;
  // The queue must be closed. Waits until nothing is in flight.
  ~IoWorker();

 private:
  // A request to the kernel, which stays at its address while it is in flight.
  struct Request;

  void work();
  // The parts of work(). Each requests or completes what it can.
  bool take_chunks();
  void prepare(Request& request);
  void submit();
  void submit_some(std::span<iocb*> controls);
  void collect();
  // Moves on a request that the kernel ended with `result`, a number of bytes or -errno.
  void complete(Request& request, int64_t result);
  // Ends the chunk of a request; `error` is empty if it is done.
  void finish(Request& request, std::string error);
  std::string failure(const Request& request, int64_t result) const;

  ChunkQueue& queue_;
  const SwapFiles& files_;
  const DiskLayout& layout_;
  const AioConfig config_;
  const int64_t block_bytes_;
  io_context_t context_ = nullptr;
  std::vector<std::unique_ptr<Request>> requests_;
  std::vector<Request*> free_, ready_;  // ready_: to submit
  int in_flight_ = 0;
  std::vector<DiskChunk> taken_;
  std::vector<io_event> events_;
  std::thread thread_;
};

}  // namespace dstrain
