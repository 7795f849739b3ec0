#include "runtime/core/threads/parts.h"

#include <pthread.h>

#include <memory>
#include <mutex>
#include <new>

#include "runtime/core/cpu.h"

namespace dstrain {
namespace {

// The threads of this process. They are a property of it, as its cores are: whoever computes shares them.
class Threads {
 public:
  int count() {
    const std::lock_guard lock(mutex_);
    return known_count();
  }

  void set_count(int threads) {
    const std::lock_guard lock(mutex_);
    count_ = threads;
    pool_ = nullptr;
    owned_.reset();
  }

  ThreadPool& pool() {
    if (ThreadPool* pool = pool_) return *pool;
    const std::lock_guard lock(mutex_);
    if (!owned_) {
      owned_ = std::make_unique<ThreadPool>(
          known_count(), spin_limit(known_count(), static_cast<int>(usable_cores().size())));
      pool_ = owned_.get();
    }
    return *owned_;
  }

  // A fork does not have the threads: it forgets them and starts its own.
  void begin_fork() {
    new (&mutex_) std::mutex;
    pool_ = nullptr;
    static_cast<void>(owned_.release());
  }

 private:
  int known_count() {
    if (count_ == 0) count_ = threads_asked_for();
    if (count_ == 0) count_ = usable_core_count();
    return count_;
  }

  std::mutex mutex_;
  int count_ = 0;  // 0: not known yet
  std::unique_ptr<ThreadPool> owned_;
  std::atomic<ThreadPool*> pool_{nullptr};
};

// Never destroyed: its threads wait until the process ends.
Threads& threads() {
  static Threads& threads = []() -> Threads& {
    ::pthread_atfork(nullptr, nullptr, [] { dstrain::threads().begin_fork(); });
    return *new Threads;
  }();
  return threads;
}

}  // namespace

int thread_count() {
  return threads().count();
}

void set_thread_count(int count) {
  threads().set_count(count);
}

ThreadPool& threads_of_process() {
  return threads().pool();
}

}  // namespace dstrain
