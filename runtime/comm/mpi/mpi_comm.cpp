#include "runtime/comm/mpi/mpi_comm.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <thread>

#include "runtime/comm/sums.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {}  // namespace

MpiComm::MpiComm(std::unique_ptr<MpiSession> mpi, Peers peers, const CommOptions& options)
    : OrderedCommunicator(mpi->rank(), mpi->size(), options),
      mpi_(std::move(mpi)),
      peers_(std::move(peers)) {
  const auto ranks = static_cast<size_t>(size());
  check_mpi(MPI_Comm_dup(mpi_->comm(), &abort_comm_), "MPI_Comm_dup");
  MPI_Comm_set_errhandler(abort_comm_, MPI_ERRORS_RETURN);
  requests_.assign(2 * ranks, MPI_REQUEST_NULL);
  abort_requests_.assign(ranks, MPI_REQUEST_NULL);
  headers_.resize(ranks);
  keys_.resize(ranks);
  sources_.resize(ranks);
  scratch_ = Memory::anonymous(kWindowBytes, "the communicator's messages");
}

MpiComm::~MpiComm() {
  close();
  // An abort may still be on its way: give it a moment, the process is about to end.
  for (int i = 0, done = 0; own_abort_ && !done && i < 200; ++i) {
    MPI_Testall(size(), abort_requests_.data(), &done, MPI_STATUSES_IGNORE);
    if (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Memory MpiComm::allocate(int64_t bytes, const std::string& what) {
  try {
    return Memory::anonymous(bytes, what);
  } catch (const RunError& error) {
    fail(error.what());
  }
}

void MpiComm::send(int peer, const std::byte* data, int64_t bytes) {
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, kDataTag, mpi_->comm(),
                      &requests_[static_cast<size_t>(size()) + static_cast<size_t>(peer)]),
            "MPI_Isend");
}

void MpiComm::receive(int peer, std::byte* data, int64_t bytes) {
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, kDataTag, mpi_->comm(),
                      &requests_[static_cast<size_t>(peer)]),
            "MPI_Irecv");
}

bool MpiComm::requests_done() {
  int done = 0;
  check_mpi(MPI_Testall(2 * size(), requests_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
  return done != 0;
}

void MpiComm::announce(const Operation& op) {
  own_header_.key = op.key;
  std::copy(op.values.begin(), op.values.end(), own_header_.values.begin());
  const size_t bytes = offsetof(Header, values) + op.values.size_bytes();
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const auto i = static_cast<size_t>(r);
    check_mpi(MPI_Irecv(&headers_[i], sizeof(Header), MPI_BYTE, r, kHeaderTag, mpi_->comm(),
                        &requests_[i]),
              "MPI_Irecv");
    check_mpi(MPI_Isend(&own_header_, static_cast<int>(bytes), MPI_BYTE, r, kHeaderTag,
                        mpi_->comm(), &requests_[static_cast<size_t>(size()) + i]),
              "MPI_Isend");
  }
}

void MpiComm::meet(const Operation& op) {
  headers_[static_cast<size_t>(rank())] = own_header_;
  std::transform(headers_.begin(), headers_.end(), keys_.begin(),
                 [](const Header& header) { return header.key; });
  compare_keys(keys_);
  if (op.key.kind == Collective::gather_values)
    for (size_t r = 0; r < headers_.size(); ++r)
      std::copy_n(headers_[r].values.begin(), op.values.size(),
                  op.all_values.begin() + static_cast<int64_t>(r * op.values.size()));
}

std::pair<int64_t, int64_t> MpiComm::share(const Operation& op, int r) const {
  const int64_t n = end_ - begin_;
  if (op.key.kind != Collective::all_reduce) return {0, n};
  return {n * r / size(), n * (r + 1) / size()};
}

// Sends what the peers need of this window and posts the receives for what this rank needs.
void MpiComm::exchange(const Operation& op) {
  const OpKey& key = op.key;
  const int64_t element = size_of(key.dtype), slice = key.elements * element;
  const int64_t window = (end_ - begin_) * element;
  const std::byte* in = op.in + begin_ * element;
  std::byte* out = op.out + begin_ * element;
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    switch (key.kind) {
      case Collective::all_reduce:
      case Collective::reduce_scatter: {
        const auto [first, last] = share(op, r);
        const auto [own_first, own_last] = share(op, rank());
        const int64_t own = (own_last - own_first) * element;
        receive(r, scratch_.data() + r * own, own);
        send(r, in + first * element + (key.kind == Collective::reduce_scatter ? r * slice : 0),
             (last - first) * element);
        break;
      }
      case Collective::all_gather:
        receive(r, out + r * slice, window);
        send(r, in, window);
        break;
      case Collective::broadcast:
        if (rank() == key.root) send(r, in, window);
        if (r == key.root) receive(r, out, window);
        break;
      case Collective::barrier:
      case Collective::gather_values:
        break;
    }
  }
  if (key.kind == Collective::all_gather && out + rank() * slice != in)
    std::copy_n(in, window, out + rank() * slice);
}

// Adds this rank's share of the window, all contributions being here.
void MpiComm::add_up(const Operation& op) {
  const bool scatter = op.key.kind == Collective::reduce_scatter;
  const int64_t element = size_of(op.key.dtype);
  const auto [first, last] = share(op, rank());
  const int64_t bytes = (last - first) * element;
  std::byte* out = op.out + (begin_ + first) * element;
  for (int r = 0; r < size(); ++r) sources_[static_cast<size_t>(r)] = scratch_.data() + r * bytes;
  sources_[static_cast<size_t>(rank())] =
      op.in + (begin_ + first + (scatter ? rank() * op.key.elements : 0)) * element;
  sum_in_order(op.key.dtype, sources_, {&out, 1}, last - first);
}

// Sends the finished share of an all-reduce to all peers and receives theirs.
void MpiComm::deliver(const Operation& op) {
  const int64_t element = size_of(op.key.dtype);
  const auto [own_first, own_last] = share(op, rank());
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const auto [first, last] = share(op, r);
    receive(r, op.out + (begin_ + first) * element, (last - first) * element);
    send(r, op.out + (begin_ + own_first) * element, (own_last - own_first) * element);
  }
}

OrderedCommunicator::Step MpiComm::advance(Operation& op) {
  const OpKey& key = op.key;
  if (stage_ == Stage::announce) {
    announce(op);
    stage_ = Stage::meet;
    return Step::moved;
  }
  if (stage_ != Stage::exchange && !requests_done()) return Step::blocked;
  sleeps_ = 0;
  const bool tensor = key.kind != Collective::barrier && key.kind != Collective::gather_values;
  const bool reduces = key.kind == Collective::all_reduce || key.kind == Collective::reduce_scatter;
  if (stage_ == Stage::meet) {
    meet(op);
    end_ = 0;
  } else if (stage_ == Stage::exchange) {
    exchange(op);
    stage_ = reduces ? Stage::contribute : Stage::deliver;
    return Step::moved;
  } else if (stage_ == Stage::contribute) {
    add_up(op);
    if (key.kind == Collective::all_reduce) {
      deliver(op);
      stage_ = Stage::deliver;
      return Step::moved;
    }
  }
  // Between two windows, or done.
  if (!tensor || end_ == key.elements) {
    stage_ = Stage::announce;
    return Step::done;
  }
  const int64_t parts = key.kind == Collective::reduce_scatter ? size() : 1;
  begin_ = end_;
  end_ =
      std::min(key.elements,
               begin_ + std::max<int64_t>(1, kWindowBytes / size_of(key.dtype) / parts - size()));
  stage_ = Stage::exchange;
  return Step::moved;
}

void MpiComm::sleep() {
  std::this_thread::sleep_for(std::chrono::microseconds(50));
}

int MpiComm::waited_rank() {
  for (int i = 0; i < 2 * size(); ++i) {
    int done = 1;
    MPI_Request request = requests_[static_cast<size_t>(i)];
    if (request != MPI_REQUEST_NULL) MPI_Request_get_status(request, &done, MPI_STATUS_IGNORE);
    if (!done) return i % size();
  }
  return -1;
}

void MpiComm::raise_abort(const std::string& reason) {
  std::copy_n(reason.begin(), std::min(reason.size(), kReasonBytes - 1), own_reason_.begin());
  own_abort_ = true;
  for (int r = 0; r < size(); ++r)
    if (r != rank())
      MPI_Isend(own_reason_.data(), kReasonBytes, MPI_CHAR, r, kAbortTag, abort_comm_,
                &abort_requests_[static_cast<size_t>(r)]);
}

bool MpiComm::abort_raised(Abort& abort) {
  if (own_abort_) {
    abort = {rank(), own_reason_.data()};
    return true;
  }
  int there = 0;
  MPI_Status status;
  check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kAbortTag, abort_comm_, &there, &status), "MPI_Iprobe");
  if (!there) return false;
  std::array<char, kReasonBytes> reason{};
  check_mpi(MPI_Recv(reason.data(), kReasonBytes, MPI_CHAR, status.MPI_SOURCE, kAbortTag,
                     abort_comm_, MPI_STATUS_IGNORE),
            "MPI_Recv");
  abort = {status.MPI_SOURCE, reason.data()};
  return true;
}

void MpiComm::leave() {
  MPI_Comm_free(&abort_comm_);
  mpi_->leave();
}

}  // namespace dstrain
