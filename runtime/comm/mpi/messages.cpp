#include "runtime/comm/mpi/messages.h"

#include "runtime/comm/mpi/message_sleep.h"
#include "runtime/core/error.h"

namespace dstrain {

Messages::Messages(const MpiSession& mpi, size_t most) : comm_(mpi.comm()) {
  requests_.reserve(most);
  peers_.reserve(most);
}

MPI_Request* Messages::add(Peer peer) {
  check(requests_.size() < requests_.capacity(), "more than {} messages at a time",
        requests_.capacity());
  peers_.push_back(peer);
  return &requests_.emplace_back(MPI_REQUEST_NULL);
}

void Messages::send(int peer, int tag, const void* data, int64_t bytes) {
  check_mpi(
      MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm_, add({peer, false})),
      "MPI_Isend");
}

void Messages::receive(int peer, int tag, void* data, int64_t bytes) {
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tag, comm_, add({peer, true})),
            "MPI_Irecv");
}

bool Messages::ready() {
  int done = 0;
  check_mpi(
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE),
      "MPI_Testall");
  if (done == 0) return false;
  requests_.clear();
  peers_.clear();
  return true;
}

void Messages::sleep(int earlier, std::chrono::microseconds longest) {
  sleep_for_messages(earlier, longest);
}

int Messages::waited_rank() {
  int sender = -1;
  for (size_t i = 0; i < requests_.size(); ++i) {
    int done = 1;
    MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE);
    if (done != 0) continue;
    if (peers_[i].receives) return peers_[i].rank;
    if (sender < 0) sender = peers_[i].rank;
  }
  return sender;
}

}  // namespace dstrain
