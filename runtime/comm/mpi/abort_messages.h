// AbortMessages: tells ranks that do not share memory about an abort, by an MPI message to each of them.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/mpi/mpi_session.h"
#include "runtime/comm/operation.h"

namespace dstrain {

class AbortMessages {
 public:
  // `peers`: the ranks to tell. No other message of `mpi` may carry `tag`. `mpi` outlives this object.
  AbortMessages(const MpiSession& mpi, std::vector<int> peers, int tag);
  AbortMessages(const AbortMessages&) = delete;
  AbortMessages& operator=(const AbortMessages&) = delete;
  // Waits a moment for messages under way, because the process is about to end.
  ~AbortMessages();

  // Tells the peers. Never blocks, may be called by any thread, once.
  void send(const std::string& reason);
  // Returns the first abort of a peer that has arrived, if any. Never blocks, may be called by any thread.
  std::optional<Abort> receive();

 private:
  using Reason = std::array<char, 1000>;

  MPI_Comm comm_;
  int tag_;
  std::vector<int> peers_;
  Reason reason_{};
  std::atomic<bool> sent_{false};
  std::vector<MPI_Request> requests_;
  std::mutex receive_mutex_;  // from the look for a message until it is received
  std::optional<Abort> received_;
};

}  // namespace dstrain
