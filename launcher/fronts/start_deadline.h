// StartDeadline: the deadline of the meeting of the ranks that the user's own mpirun or srun started. Until they have met
// nobody watches them, and MPI waits without limit for one that is stopped, or that never begins.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>

namespace dstrain {

class StartDeadline {
 public:
  // Starts a thread that says after a minute that the ranks have not met (ranks 0 and 1 alone), and ends this process
  // with status 2 after `seconds` (dstrain.timeout_s). `starter`: "mpirun" or "srun".
  StartDeadline(int rank, int64_t seconds, std::string starter);
  // The ranks have met.
  ~StartDeadline();
  StartDeadline(const StartDeadline&) = delete;
  StartDeadline& operator=(const StartDeadline&) = delete;

 private:
  void watch(int rank, int64_t seconds, const std::string& starter);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool met_ = false;
  std::thread thread_;
};

}  // namespace dstrain
