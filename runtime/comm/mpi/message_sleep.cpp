#include "runtime/comm/mpi/message_sleep.h"

#include <sys/prctl.h>

#include <algorithm>
#include <thread>

#include "runtime/comm/mpi/mpi_session.h"

namespace dstrain {

void sleep_for_messages(int earlier, std::chrono::microseconds longest) {
  constexpr std::chrono::microseconds kShortest{5}, kLongest{500};
  std::this_thread::sleep_for(std::min({longest, kLongest, kShortest * (1 + earlier / 8)}));
}

void wait_for(MPI_Request request, const std::string& what) {
  constexpr std::chrono::milliseconds kLongest{1};
  for (int looks = 0, done = 0;; ++looks) {
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
    if (done != 0) return;
    sleep_for_messages(looks, kLongest);
  }
}

void sleep_precisely() {
  constexpr unsigned long kNanoseconds = 1000;
  ::prctl(PR_SET_TIMERSLACK, kNanoseconds);
}

}  // namespace dstrain
