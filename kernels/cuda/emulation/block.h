// A block of a grid on one host thread: its CUDA threads as fibers, what they wait for, and its shared memory.
//
// Warps run in bursts: the next fiber is one of the same warp while there is one, but for a random change of the warp, more
// or less often from launch to launch. So some warps are far ahead of others, and what lacks a barrier shows.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/emulation/fiber.h"
#include "kernels/cuda/emulation/hopper/box_copies.h"
#include "kernels/cuda/emulation/hopper/products.h"
#include "kernels/cuda/emulation/hopper/shared_barriers.h"
#include "kernels/cuda/emulation/threads.h"

namespace dstrain::emulated {

// A fiber, and the place at which its CUDA thread waits.
struct Worker {
  explicit Worker(std::function<void()> work) : fiber(std::move(work)) {}

  Fiber fiber;
  unsigned thread = 0;                // linear index in the block
  const SourceLine* waits = nullptr;  // null if the thread can run
  const uint64_t* word = nullptr;     // of the barrier in shared memory for whose phase it waits
};

// A queue of at most kMost workers. It calls neither the C library nor std::vector, because ThreadSanitizer would report
// such calls by different threads of a block as races.
template <unsigned kMost>
class WorkerList {
 public:
  void clear() { first_ = past_ = 0; }
  bool empty() const { return first_ == past_; }
  unsigned size() const { return past_ - first_; }
  void push(Worker* worker) { list_[past_++ % kMost] = worker; }
  Worker* pop() { return list_[first_++ % kMost]; }

 private:
  unsigned first_ = 0, past_ = 0;  // both wrap around at the same number
  Worker* list_[kMost];
};

// Runs one block at a time and keeps what its threads wait for. The functions below run() must be called by its threads.
class Block {
 public:
  Block();
  ~Block();

  // Runs the threads of a block. Throws as run_grid does.
  void run(const GridShape& shape, const std::function<void()>& body, dim3 index, uint64_t seed,
           Fault fault);

  void barrier(const SourceLine& place);
  void group_barrier(int id, int threads, const SourceLine& place);
  void collective(unsigned mask, void* payload, Combine combine, bool orders,
                  const SourceLine& place);
  unsigned char* shared() { return shared_.get(); }

  // What hopper/instructions.h says of these.
  void init_barrier(uint64_t* word, int arrivals, const SourceLine& place);
  void arrive(uint64_t* word, uint32_t bytes, const SourceLine& place);
  void wait_phase(uint64_t* word, int parity, const SourceLine& place);
  void copy_box(void* to, const TensorMap& from, const BoxCopies::Coordinates& at, uint64_t* word,
                const SourceLine& place);
  void begin_products();
  void commit_products();
  void wait_products(unsigned pending, const SourceLine& place);
  void multiply(const ProductShape& shape, ProductLane& lane, const SourceLine& place);
  void take_sums(float* sums, int tiles, const SourceLine& place);

 private:
  static constexpr unsigned kWarps = kMostBlockThreads / kWarp;

  struct Warp {
    unsigned present = 0, arrived = 0, mask = 0;
    SourceLine place{};
    void* payloads[kWarp] = {};
    Worker* waiting[kWarp] = {};
    char order[2] = {};  // addresses for acquire and release, used alternately
    unsigned turn = 0;
  };

  // A barrier, the threads that wait at it, and addresses for acquire and release, used alternately.
  struct Meeting {
    WorkerList<kMostBlockThreads> waiting;
    SourceLine place{};
    unsigned threads = 0;
    char order[2] = {};
    unsigned turn = 0;
  };

  void prepare(uint64_t seed);
  void work(Worker& worker);
  void run_thread(Worker& worker);
  Worker& free_worker();
  Worker* next_worker();
  void make_ready(Worker* worker);
  void meet(Meeting& barrier, unsigned threads, const SourceLine& place);
  void wait(const SourceLine& place);
  bool deliver_copy();
  void end_products();
  void wake_waiting(const uint64_t* word);
  uint64_t draw();
  template <class F>
  void of_place(const SourceLine& place, const F& f);
  [[noreturn]] void fail_waiting();
  std::string name_of_thread(unsigned thread) const;

  const GridShape* shape_ = nullptr;
  const std::function<void()>* body_ = nullptr;
  dim3 index_;
  Fault fault_ = Fault::none;
  unsigned threads_ = 0, started_threads_ = 0, ended_threads_ = 0;
  std::vector<unsigned> order_;  // in which threads start
  std::vector<std::unique_ptr<Worker>> workers_;
  WorkerList<kMostBlockThreads> idle_;
  std::array<WorkerList<kWarp>, kWarps> ready_;  // of each warp
  unsigned ready_warps_ = 0;                     // a bit for each that has ready workers
  unsigned warp_ = 0;                            // that runs
  uint64_t random_ = 0, burst_ = 1;
  Worker* running_ = nullptr;
  std::vector<Warp> warps_;
  std::array<Meeting, kBarriers> barriers_;  // the first one is the whole block's
  SharedBarriers shared_barriers_;
  WorkerList<kMostBlockThreads> phase_waiters_;
  BoxCopies copies_;
  Products products_;
  struct FreeShared {
    void operator()(unsigned char* memory) const;
  };
  std::unique_ptr<unsigned char[], FreeShared> shared_;
  size_t shared_bytes_ = 0;
  char started_ = 0, finished_ = 0;
};

// Returns the block whose threads run on the calling host thread.
Block& block_of_thread();

}  // namespace dstrain::emulated
