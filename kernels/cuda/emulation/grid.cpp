#include "kernels/cuda/emulation/grid.h"

#include <exception>
#include <latch>
#include <memory>
#include <numeric>

#include "kernels/cuda/emulation/block.h"
#include "runtime/core/devices/emulated_stream.h"
#include "runtime/core/error.h"
#include "runtime/core/philox.h"

namespace dstrain::emulated {

namespace {

// The resources with which a host thread runs blocks, one after the other, so that blocks can use the same shared
// memory.
struct Multiprocessor {
  std::unique_ptr<Block> block;
  uint64_t launches = 0;
  Fault fault = Fault::none;
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
                uint64_t seed, uint64_t first, uint64_t step, Fault fault) {
  Multiprocessor& here = multiprocessor();
  if (!here.block) here.block = std::make_unique<Block>();
  gridDim = shape.blocks;
  blockDim = shape.threads;
  try {
    for (uint64_t i = first; i < order.count(); i += step)
      here.block->run(shape, body, order[i], seed + i, fault);
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
  if (order.count() == 1) return run_blocks(shape, body, order, seed, 0, 1, here.fault);
  if (!here.neighbour) here.neighbour = std::make_unique<EmulatedStream>();
  std::exception_ptr failure;
  const Fault fault = here.fault;
  std::latch begun(1);
  here.neighbour->submit([&] {
    begun.count_down();
    try {
      run_blocks(shape, body, order, seed, 1, 2, fault);
    } catch (...) {
      failure = std::current_exception();
    }
  });
  // If the second thread started after these blocks, it would take the stream's lock after them, and
  // ThreadSanitizer would treat the two threads' blocks as ordered.
  if (under_tsan()) begun.wait();
  try {
    run_blocks(shape, body, order, seed, 0, 2, fault);
  } catch (...) {
    here.neighbour->synchronize();
    throw;
  }
  here.neighbour->synchronize();
  if (failure) std::rethrow_exception(failure);
}

void seed_fault(Fault fault) {
  multiprocessor().fault = fault;
}

Block& block_of_thread() {
  return *multiprocessor().block;
}

void block_barrier(const SourceLine& place) {
  block_of_thread().barrier(place);
}

void group_barrier(int id, int threads, const SourceLine& place) {
  block_of_thread().group_barrier(id, threads, place);
}

void warp_collective(unsigned mask, void* payload, Combine combine, bool orders,
                     const SourceLine& place) {
  block_of_thread().collective(mask, payload, combine, orders, place);
}

void* dynamic_shared_memory() {
  return block_of_thread().shared();
}

}  // namespace dstrain::emulated
