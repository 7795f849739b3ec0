#include "kernels/cuda/emulation/grid.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <exception>
#include <latch>
#include <memory>
#include <numeric>
#include <vector>

#include "kernels/cuda/emulation/fiber.h"
#include "runtime/core/devices/emulated_stream.h"
#include "runtime/core/error.h"
#include "runtime/core/philox.h"

namespace dstrain::emulated {

thread_local constinit dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace {

// A fiber, and the place at which its CUDA thread waits.
struct Worker {
  explicit Worker(std::function<void()> work) : fiber(std::move(work)) {}

  Fiber fiber;
  unsigned thread = 0;                // linear index in the block
  const SourceLine* waits = nullptr;  // null if the thread can run
};

struct Warp {
  unsigned present = 0, arrived = 0, mask = 0;
  SourceLine place{};
  void* payloads[kWarp] = {};
  Worker* waiting[kWarp] = {};
  char order[2] = {};  // addresses for acquire and release, used alternately
  unsigned turn = 0;
};

// A queue of workers. It calls neither the C library nor std::vector, because ThreadSanitizer would report such
// calls by different threads of a block as races.
class WorkerList {
 public:
  void clear() { first_ = past_ = 0; }
  bool empty() const { return first_ == past_; }
  unsigned size() const { return past_ - first_; }
  void push(Worker* worker) { list_[past_++ % kMostBlockThreads] = worker; }
  Worker* pop() { return list_[first_++ % kMostBlockThreads]; }

 private:
  unsigned first_ = 0, past_ = 0;  // both wrap around at the same number
  Worker* list_[kMostBlockThreads];
};

bool same_text(const char* a, const char* b) {
  for (; *a == *b; ++a, ++b)
    if (*a == 0) return true;
  return false;
}

bool same(const SourceLine& a, const SourceLine& b) {
  return a.line == b.line && same_text(a.call, b.call) && same_text(a.file, b.file);
}

// A barrier, the threads that wait at it, and addresses for acquire and release, used alternately.
struct Barrier {
  WorkerList waiting;
  SourceLine place{};
  unsigned threads = 0;
  char order[2] = {};
  unsigned turn = 0;
};

// Runs one block at a time and keeps what its threads wait for.
class Block {
 public:
  void run(const GridShape& shape, const std::function<void()>& body, dim3 index, uint64_t seed);
  void barrier(const SourceLine& place);
  void group_barrier(int id, int threads, const SourceLine& place);
  void collective(unsigned mask, void* payload, Combine combine, bool orders,
                  const SourceLine& place);
  void* shared() { return shared_.get(); }

 private:
  void prepare(uint64_t seed);
  void work(Worker& worker);
  void run_thread(Worker& worker);
  Worker& free_worker();
  void meet(Barrier& barrier, unsigned threads, const SourceLine& place);
  void wait(const SourceLine& place);
  [[noreturn]] void fail_waiting() const;
  std::string name_of_thread(unsigned thread) const;

  const GridShape* shape_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  dim3 index_;
  unsigned threads_ = 0, started_threads_ = 0, ended_threads_ = 0;
  std::vector<unsigned> order_;  // in which threads start
  std::vector<std::unique_ptr<Worker>> workers_;
  WorkerList idle_, ready_;
  Worker* running_ = nullptr;
  std::vector<Warp> warps_;
  std::array<Barrier, kBarriers> barriers_;  // the first one is the whole block's
  std::unique_ptr<unsigned char[]> shared_;
  size_t shared_bytes_ = 0;
  char started_ = 0, finished_ = 0;
};

void Block::prepare(uint64_t seed) {
  if (shared_bytes_ != shape_->shared || !shared_) {
    shared_bytes_ = shape_->shared;
    shared_ = std::make_unique<unsigned char[]>(shared_bytes_);
  }
  std::memset(shared_.get(), 0xff, shared_bytes_);
  order_.resize(threads_);
  std::iota(order_.begin(), order_.end(), 0u);
  for (unsigned i = threads_; i > 1; --i) {
    seed = mix64(seed);
    std::swap(order_[i - 1], order_[seed % i]);
  }
  warps_.assign((threads_ + kWarp - 1) / kWarp, Warp{});
  for (unsigned w = 0; w < warps_.size(); ++w) {
    const unsigned lanes = std::min<unsigned>(kWarp, threads_ - w * kWarp);
    warps_[w].present = lanes == kWarp ? ~0u : (1u << lanes) - 1;
  }
  idle_.clear();
  for (const auto& worker : workers_) idle_.push(worker.get());
  ready_.clear();
  for (Barrier& barrier : barriers_) barrier.waiting.clear();
  started_threads_ = ended_threads_ = 0;
}

void Block::run(const GridShape& shape, const std::function<void()>& body, dim3 index,
                uint64_t seed) {
  shape_ = &shape;
  body_ = &body;
  index_ = index;
  threads_ = shape.threads.x * shape.threads.y * shape.threads.z;
  prepare(seed);
  release(&started_);
  while (true) {
    if (!ready_.empty())
      running_ = ready_.pop();
    else if (started_threads_ < threads_)
      running_ = &free_worker();
    else
      break;
    if (running_->fiber.resume() && !under_tsan()) idle_.push(running_);
  }
  acquire(&finished_);
  if (ended_threads_ != threads_) fail_waiting();
}

Worker& Block::free_worker() {
  if (idle_.empty()) {
    workers_.push_back(std::make_unique<Worker>([this] { work(*running_); }));
    return *workers_.back();
  }
  return *idle_.pop();
}

// Under ThreadSanitizer a fiber runs one CUDA thread only: threads that share a stack would be reported as races.
void Block::work(Worker& worker) {
  do run_thread(worker);
  while (started_threads_ < threads_ && !under_tsan());
}

void Block::run_thread(Worker& worker) {
  const unsigned thread = worker.thread = order_[started_threads_++];
  const dim3& size = shape_->threads;
  threadIdx = dim3(thread % size.x, thread / size.x % size.y, thread / (size.x * size.y));
  blockIdx = index_;
  acquire(&started_);
  (*body_)();
  release(&finished_);
  ++ended_threads_;
}

// Suspends the running thread until another one adds it to the ready list.
void Block::wait(const SourceLine& place) {
  Worker& self = *running_;
  const dim3 thread = threadIdx;
  self.waits = &place;
  self.fiber.suspend();
  self.waits = nullptr;
  threadIdx = thread;
}

void Block::barrier(const SourceLine& place) {
  meet(barriers_[0], threads_, place);
}

void Block::group_barrier(int id, int threads, const SourceLine& place) {
  check(
      id > 0 && id < kBarriers && threads > 0 && threads % kWarp == 0,
      "emulated kernel {}: {}:{}: a barrier {} of {} threads; ids are 1 to {}, threads whole warps",
      shape_->kernel, place.file, place.line, id, threads, kBarriers - 1);
  meet(barriers_[static_cast<size_t>(id)], static_cast<unsigned>(threads), place);
}

void Block::meet(Barrier& barrier, unsigned threads, const SourceLine& place) {
  if (barrier.waiting.empty()) barrier.place = place, barrier.threads = threads;
  check(same(place, barrier.place),
        "emulated kernel {}: {} is at the barrier of {}:{}, others of its block at that of {}:{}",
        shape_->kernel, name_of_thread(running_->thread), place.file, place.line,
        barrier.place.file, barrier.place.line);
  check(threads == barrier.threads, "emulated kernel {}: {}:{}: a barrier of {} and of {} threads",
        shape_->kernel, place.file, place.line, threads, barrier.threads);
  char& order = barrier.order[barrier.turn % 2];
  release(&order);
  if (barrier.waiting.size() + 1 < threads) {
    barrier.waiting.push(running_);
    wait(place);
  } else {
    ++barrier.turn;
    while (!barrier.waiting.empty()) ready_.push(barrier.waiting.pop());
  }
  acquire(&order);
}

void Block::collective(unsigned mask, void* payload, Combine combine, bool orders,
                       const SourceLine& place) {
  const unsigned thread = running_->thread, lane = thread % kWarp;
  Warp& warp = warps_[thread / kWarp];
  check((mask >> lane & 1u) != 0, "emulated kernel {}: {}:{}: {}: {} is not in its mask {:#x}",
        shape_->kernel, place.file, place.line, place.call, name_of_thread(thread), mask);
  if (warp.arrived == 0) warp.place = place, warp.mask = mask;
  check(
      same(place, warp.place) && mask == warp.mask,
      "emulated kernel {}: {} is at {} of {}:{} with mask {:#x}, others of its warp at {} of {}:{} "
      "with mask {:#x}",
      shape_->kernel, name_of_thread(thread), place.call, place.file, place.line, mask,
      warp.place.call, warp.place.file, warp.place.line, warp.mask);
  const unsigned lanes = mask & warp.present;
  char& order = warp.order[warp.turn % 2];
  if (orders) release(&order);
  warp.arrived |= 1u << lane;
  warp.payloads[lane] = payload;
  warp.waiting[lane] = running_;
  if (warp.arrived != lanes) {
    wait(place);
  } else {
    combine(lanes, warp.payloads);
    for (unsigned k = 0; k < kWarp; ++k) {
      if ((lanes >> k & 1u) != 0 && k != lane) ready_.push(warp.waiting[k]);
      warp.payloads[k] = nullptr;
    }
    warp.arrived = 0;
    ++warp.turn;
  }
  if (orders) acquire(&order);
}

std::string Block::name_of_thread(unsigned thread) const {
  const dim3& size = shape_->threads;
  return fmt::format("thread ({}, {}, {}) of block ({}, {}, {})", thread % size.x,
                     thread / size.x % size.y, thread / (size.x * size.y), index_.x, index_.y,
                     index_.z);
}

void Block::fail_waiting() const {
  std::string waiting;
  unsigned count = 0;
  for (const auto& worker : workers_) {
    if (!worker->waits) continue;
    if (++count <= 3)
      waiting += fmt::format("; {} waits at {} of {}:{}", name_of_thread(worker->thread),
                             worker->waits->call, worker->waits->file, worker->waits->line);
  }
  throw InternalError(
      fmt::format("emulated kernel {}: of {} threads of a block {} have ended and {} wait for "
                  "others that never "
                  "come{}",
                  shape_->kernel, threads_, ended_threads_, count, waiting));
}

// The resources with which a host thread runs blocks, one after the other, so that blocks can use the same shared
// memory.
struct Multiprocessor {
  std::unique_ptr<Block> block;
  uint64_t launches = 0;
  std::unique_ptr<EmulatedStream> neighbour;  // runs the second host thread
};

Multiprocessor& multiprocessor() {
  thread_local Multiprocessor here;
  return here;
}

// A permutation of a grid's blocks: steps by a stride that is coprime to their number.
class BlockOrder {
 public:
  BlockOrder(const dim3& blocks, uint64_t seed)
      : blocks_(blocks),
        count_(uint64_t{blocks.x} * blocks.y * blocks.z),
        first_(seed % count_),
        stride_(mix64(seed) % count_ + 1) {
    while (std::gcd(stride_, count_) != 1) ++stride_;
  }
  uint64_t count() const { return count_; }
  dim3 operator[](uint64_t i) const {
    const auto at =
        static_cast<uint64_t>((static_cast<unsigned __int128>(i) * stride_ + first_) % count_);
    return {static_cast<unsigned>(at % blocks_.x),
            static_cast<unsigned>(at / blocks_.x % blocks_.y),
            static_cast<unsigned>(at / (uint64_t{blocks_.x} * blocks_.y))};
  }

 private:
  dim3 blocks_;
  uint64_t count_, first_, stride_;
};

// Runs every `step`-th block from `first` on, on the calling thread.
void run_blocks(const GridShape& shape, const std::function<void()>& body, const BlockOrder& order,
                uint64_t seed, uint64_t first, uint64_t step) {
  Multiprocessor& here = multiprocessor();
  if (!here.block) here.block = std::make_unique<Block>();
  gridDim = shape.blocks;
  blockDim = shape.threads;
  try {
    for (uint64_t i = first; i < order.count(); i += step)
      here.block->run(shape, body, order[i], seed + i);
  } catch (...) {
    here.block.reset();  // unwinds the threads that still wait
    throw;
  }
}

void check_shape(const GridShape& s) {
  const uint64_t threads = uint64_t{s.threads.x} * s.threads.y * s.threads.z;
  check(threads >= 1 && threads <= kMostBlockThreads,
        "emulated kernel {}: {} threads a block, expected 1 to {}", s.kernel, threads,
        kMostBlockThreads);
  check(s.shared <= kMostBlockShared,
        "emulated kernel {}: {} bytes of shared memory, expected at most {}", s.kernel, s.shared,
        kMostBlockShared);
  check(
      s.blocks.x > 0 && s.blocks.y > 0 && s.blocks.z > 0 && s.blocks.x < 0x80000000u &&
          s.blocks.y < 65536 && s.blocks.z < 65536,
      "emulated kernel {}: a grid of ({}, {}, {}) blocks; each must be at least 1, the second and "
      "third at most 65535",
      s.kernel, s.blocks.x, s.blocks.y, s.blocks.z);
}

}  // namespace

void run_grid(const GridShape& shape, const std::function<void()>& body) {
  check_shape(shape);
  Multiprocessor& here = multiprocessor();
  const uint64_t seed = mix64(here.launches++);
  const BlockOrder order(shape.blocks, seed);
  if (order.count() == 1) return run_blocks(shape, body, order, seed, 0, 1);
  if (!here.neighbour) here.neighbour = std::make_unique<EmulatedStream>();
  std::exception_ptr failure;
  std::latch begun(1);
  here.neighbour->submit([&] {
    begun.count_down();
    try {
      run_blocks(shape, body, order, seed, 1, 2);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  // If the second thread started after these blocks, it would take the stream's lock after them, and
  // ThreadSanitizer would treat the two threads' blocks as ordered.
  if (under_tsan()) begun.wait();
  try {
    run_blocks(shape, body, order, seed, 0, 2);
  } catch (...) {
    here.neighbour->synchronize();
    throw;
  }
  here.neighbour->synchronize();
  if (failure) std::rethrow_exception(failure);
}

void block_barrier(const SourceLine& place) {
  multiprocessor().block->barrier(place);
}

void group_barrier(int id, int threads, const SourceLine& place) {
  multiprocessor().block->group_barrier(id, threads, place);
}

void warp_collective(unsigned mask, void* payload, Combine combine, bool orders,
                     const SourceLine& place) {
  multiprocessor().block->collective(mask, payload, combine, orders, place);
}

void* dynamic_shared_memory() {
  return multiprocessor().block->shared();
}

}  // namespace dstrain::emulated
