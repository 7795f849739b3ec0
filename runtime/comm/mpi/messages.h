// Messages: the MPI messages of one stage of an operation, as one thing to wait for.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "runtime/comm/mpi/mpi_session.h"
#include "runtime/comm/stages.h"

namespace dstrain {

class Messages final : public Awaited {
 public:
  // At most `most` messages at a time. `mpi` outlives this object.
  Messages(const MpiSession& mpi, size_t most);

  // Start a message. The memory must stay until ready().
  void send(int peer, int tag, const void* data, int64_t bytes);
  void receive(int peer, int tag, void* data, int64_t bytes);

  // Whether all are complete; then others can be started.
  bool ready() override;
  // The peer of an incomplete message, of a receive before that of a send.
  int waited_rank() override;
  void sleep(int earlier, std::chrono::microseconds longest) override;

 private:
  struct Peer {
    int rank;
    bool receives;
  };
  MPI_Request* add(Peer peer);

  MPI_Comm comm_;
  std::vector<MPI_Request> requests_;
  std::vector<Peer> peers_;  // of the requests
};

}  // namespace dstrain
