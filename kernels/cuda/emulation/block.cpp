#include "kernels/cuda/emulation/block.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <numeric>

#include "kernels/cuda/emulation/sanitizers.h"
#include "runtime/core/error.h"
#include "runtime/core/philox.h"

namespace dstrain::emulated {

thread_local constinit dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace {

// The alignment of shared memory: a swizzle repeats after so many bytes.
constexpr std::align_val_t kSharedAlignment{1024};

bool same_text(const char* a, const char* b) {
  if (a == b) return true;
  for (; *a == *b; ++a, ++b)
    if (*a == 0) return true;
  return false;
}

bool same(const SourceLine& a, const SourceLine& b) {
  return a.line == b.line && same_text(a.call, b.call) && same_text(a.file, b.file);
}

}  // namespace

void Block::FreeShared::operator()(unsigned char* memory) const {
  ::operator delete[](memory, kSharedAlignment);
}

Block::Block() = default;
Block::~Block() = default;

void Block::prepare(uint64_t seed) {
  if (shared_bytes_ != shape_->shared || !shared_) {
    shared_bytes_ = shape_->shared;
    shared_.reset(static_cast<unsigned char*>(::operator new[](shared_bytes_, kSharedAlignment)));
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
  for (auto& ready : ready_) ready.clear();
  ready_warps_ = warp_ = 0;
  for (Meeting& barrier : barriers_) barrier.waiting.clear();
  shared_barriers_.clear();
  phase_waiters_.clear();
  copies_.clear();
  products_.clear(static_cast<unsigned>(warps_.size()));
  started_threads_ = ended_threads_ = 0;
  random_ = seed;
  burst_ = uint64_t{8} << 3 * (draw() % 4);
}

void Block::run(const GridShape& shape, const std::function<void()>& body, dim3 index,
                uint64_t seed, Fault fault) {
  shape_ = &shape;
  body_ = &body;
  index_ = index;
  fault_ = fault;
  threads_ = shape.threads.x * shape.threads.y * shape.threads.z;
  prepare(seed);
  release(&started_);
  while (true) {
    running_ = next_worker();
    if (running_ == nullptr) {
      if (!deliver_copy()) break;
      continue;
    }
    if (running_->fiber.resume() && !under_tsan()) idle_.push(running_);
    if (!copies_.empty() && draw() % 64 == 0) deliver_copy();
  }
  acquire(&finished_);
  if (ended_threads_ != threads_) fail_waiting();
  end_products();
}

uint64_t Block::draw() {
  return random_ = mix64(random_);
}

// Returns a worker that can run, or null.
Worker* Block::next_worker() {
  if (ready_warps_ == 0) return started_threads_ < threads_ ? &free_worker() : nullptr;
  if ((ready_warps_ >> warp_ & 1u) == 0 || draw() % burst_ == 0) {
    const auto from = static_cast<unsigned>(draw() % kWarps);
    const unsigned turned = std::rotr(ready_warps_, static_cast<int>(from));
    warp_ = (from + static_cast<unsigned>(std::countr_zero(turned))) % kWarps;
  }
  Worker* const worker = ready_[warp_].pop();
  if (ready_[warp_].empty()) ready_warps_ &= ~(1u << warp_);
  return worker;
}

void Block::make_ready(Worker* worker) {
  const unsigned warp = worker->thread / kWarp;
  ready_[warp].push(worker);
  ready_warps_ |= 1u << warp;
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
  if (fault_ == Fault::no_block_barrier) return;
  meet(barriers_[0], threads_, place);
}

void Block::group_barrier(int id, int threads, const SourceLine& place) {
  if (fault_ == Fault::no_group_barrier) return;
  check(
      id > 0 && id < kBarriers && threads > 0 && threads % kWarp == 0,
      "emulated kernel {}: {}:{}: a barrier {} of {} threads; ids are 1 to {}, threads whole warps",
      shape_->kernel, place.file, place.line, id, threads, kBarriers - 1);
  meet(barriers_[static_cast<size_t>(id)], static_cast<unsigned>(threads), place);
}

void Block::meet(Meeting& barrier, unsigned threads, const SourceLine& place) {
  if (barrier.waiting.empty()) barrier.place = place, barrier.threads = threads;
  if (!same(place, barrier.place))
    check(false,
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
    while (!barrier.waiting.empty()) make_ready(barrier.waiting.pop());
  }
  acquire(&order);
}

void Block::collective(unsigned mask, void* payload, Combine combine, bool orders,
                       const SourceLine& place) {
  const unsigned thread = running_->thread, lane = thread % kWarp;
  Warp& warp = warps_[thread / kWarp];
  if ((mask >> lane & 1u) == 0)
    check(false, "emulated kernel {}: {}:{}: {}: {} is not in its mask {:#x}", shape_->kernel,
          place.file, place.line, place.call, name_of_thread(thread), mask);
  if (warp.arrived == 0) warp.place = place, warp.mask = mask;
  if (!same(place, warp.place) || mask != warp.mask)
    check(false,
          "emulated kernel {}: {} is at {} of {}:{} with mask {:#x}, others of its warp at {} of "
          "{}:{} with mask {:#x}",
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
      if ((lanes >> k & 1u) != 0 && k != lane) make_ready(warp.waiting[k]);
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

void Block::fail_waiting() {
  std::string waiting;
  unsigned count = 0;
  for (const auto& worker : workers_) {
    if (!worker->waits) continue;
    if (++count <= 3)
      waiting += fmt::format("; {} waits at {} of {}:{}", name_of_thread(worker->thread),
                             worker->waits->call, worker->waits->file, worker->waits->line);
    if (count <= 3 && worker->word != nullptr)
      waiting += fmt::format(" for {}", shared_barriers_.describe(worker->word));
  }
  throw InternalError(
      fmt::format("emulated kernel {}: of {} threads of a block {} have ended and {} wait for "
                  "others that never "
                  "come{}",
                  shape_->kernel, threads_, ended_threads_, count, waiting));
}

}  // namespace dstrain::emulated
