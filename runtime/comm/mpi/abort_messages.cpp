#include "runtime/comm/mpi/abort_messages.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

namespace dstrain {

AbortMessages::AbortMessages(const MpiSession& mpi, std::vector<int> peers, int tag)
    : comm_(mpi.comm()),
      tag_(tag),
      peers_(std::move(peers)),
      requests_(peers_.size(), MPI_REQUEST_NULL) {}

AbortMessages::~AbortMessages() {
  constexpr int kMilliseconds = 200;
  for (int i = 0, done = 0; sent_ && !done && i < kMilliseconds; ++i) {
    MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
    if (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void AbortMessages::send(const std::string& reason) {
  std::copy_n(reason.begin(), std::min(reason.size(), reason_.size() - 1), reason_.begin());
  for (size_t i = 0; i < peers_.size(); ++i)
    MPI_Isend(reason_.data(), static_cast<int>(reason_.size()), MPI_CHAR, peers_[i], tag_, comm_,
              &requests_[i]);
  sent_ = true;
}

std::optional<Abort> AbortMessages::receive() {
  const std::lock_guard lock(receive_mutex_);
  if (received_) return received_;
  int arrived = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, tag_, comm_, &arrived, &status), "MPI_Iprobe");
  if (!arrived) return std::nullopt;
  Reason reason{};
  check_mpi(MPI_Recv(reason.data(), static_cast<int>(reason.size()), MPI_CHAR, status.MPI_SOURCE,
                     tag_, comm_, MPI_STATUS_IGNORE),
            "MPI_Recv");
  received_ = Abort{status.MPI_SOURCE, reason.data()};
  return received_;
}

}  // namespace dstrain
