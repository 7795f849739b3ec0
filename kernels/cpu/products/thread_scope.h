// Libraries that ask OpenMP how many threads to use are told here: while a ThreadScope lives, the
// calling thread's parallel regions have exactly the given number of threads.
#pragma once

#include <omp.h>

namespace dstrain {

class ThreadScope {
 public:
  explicit ThreadScope(int threads) : before_(omp_get_max_threads()), changed_(threads != before_) {
    if (changed_) omp_set_num_threads(threads);
  }
  ~ThreadScope() {
    if (changed_) omp_set_num_threads(before_);
  }
  ThreadScope(const ThreadScope&) = delete;
  ThreadScope& operator=(const ThreadScope&) = delete;

 private:
  int before_;
  bool changed_;
};

}  // namespace dstrain
