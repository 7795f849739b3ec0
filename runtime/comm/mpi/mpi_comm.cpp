#include "runtime/comm/mpi/mpi_comm.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "runtime/comm/lone_comm.h"
#include "runtime/comm/sums.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

std::vector<int> all_but(int rank, int ranks) {
  std::vector<int> others;
  for (int r = 0; r < ranks; ++r)
    if (r != rank) others.push_back(r);
  return others;
}

}  // namespace

MpiComm::MpiComm(std::unique_ptr<MpiSession> mpi, Peers peers, const CommOptions& options,
                 PartOf part)
    : OrderedComm(mpi->rank(), mpi->size(), options, std::move(part)),
      mpi_(std::move(mpi)),
      peers_(std::move(peers)),
      messages_(*mpi_, 2 * static_cast<size_t>(size())),
      headers_(static_cast<size_t>(size())),
      keys_(static_cast<size_t>(size())),
      sources_(static_cast<size_t>(size())),
      received_(Memory::anonymous(kWindowBytes, "the communicator's messages")),
      aborts_(*mpi_, all_but(rank(), size()), kAbortTag) {}

MpiComm::~MpiComm() {
  close();
}

Memory MpiComm::allocate(int64_t bytes, const std::string& what) {
  check_can_allocate(what);
  try {
    return Memory::anonymous(bytes, what);
  } catch (const RunError& error) {
    fail(error.what());
  }
}

std::unique_ptr<Communicator> MpiComm::open_part(std::unique_ptr<PartRendezvous> ranks) {
  Peers peers(*ranks, host_of(rank()));
  auto mpi = mpi_->split(ranks->size() == 1 ? MpiSession::kNoPart : ranks->parent_rank(0));
  PartOf part{this, ranks->world_ranks()};
  if (!mpi) return std::make_unique<LoneComm>(std::move(part));
  return std::make_unique<MpiComm>(std::move(mpi), std::move(peers), CommOptions{},
                                   std::move(part));
}

Stages MpiComm::run(Operation op) {
  const OpKey& key = op.key;
  exchange_headers(op);
  co_await messages_;
  read_headers(op);
  if (!has_tensor(key.kind)) co_return;
  const int64_t window = std::max<int64_t>(
      1, kWindowBytes / size_of(key.dtype) / source_slices(key.kind, size()) - size());
  for (begin_ = 0; begin_ < key.elements; begin_ = end_) {
    end_ = std::min(key.elements, begin_ + window);
    exchange_window(op);
    co_await messages_;
    if (is_sum(key.kind)) add_up(op);
    if (key.kind == Collective::all_reduce) {
      exchange_sums(op);
      co_await messages_;
    }
  }
}

void MpiComm::exchange_headers(const Operation& op) {
  Header& own = headers_[static_cast<size_t>(rank())];
  own.key = op.key;
  std::copy(op.values.begin(), op.values.end(), own.values.begin());
  const size_t bytes = offsetof(Header, values) + op.values.size_bytes();
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    messages_.receive(r, kHeaderTag, &headers_[static_cast<size_t>(r)], sizeof(Header));
    messages_.send(r, kHeaderTag, &own, static_cast<int64_t>(bytes));
  }
}

void MpiComm::read_headers(const Operation& op) {
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
void MpiComm::exchange_window(const Operation& op) {
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
        messages_.receive(r, kDataTag, received_.data() + r * own, own);
        messages_.send(
            r, kDataTag,
            in + first * element + (key.kind == Collective::reduce_scatter ? r * slice : 0),
            (last - first) * element);
        break;
      }
      case Collective::all_gather:
        messages_.receive(r, kDataTag, out + r * slice, window);
        messages_.send(r, kDataTag, in, window);
        break;
      case Collective::all_to_all:
        messages_.receive(r, kDataTag, out + r * slice, window);
        messages_.send(r, kDataTag, in + r * slice, window);
        break;
      case Collective::exchange_rows: {
        const RowCounts& rows = op.rows;
        const int64_t n = end_ - begin_, come = rows.within(r, rank(), begin_, n) * element,
                      go = rows.within(rank(), r, begin_, n) * element;
        if (come > 0)
          messages_.receive(r, kDataTag, out + rows.received_before(r, rank()) * element, come);
        if (go > 0) messages_.send(r, kDataTag, in + rows.sent_before(rank(), r) * element, go);
        break;
      }
      case Collective::broadcast:
      case Collective::message:
        if (rank() == key.root) messages_.send(r, kDataTag, in, window);
        if (r == key.root) messages_.receive(r, kDataTag, out, window);
        break;
      case Collective::barrier:
      case Collective::gather_values:
        break;
    }
  }
  if (key.kind == Collective::all_gather && out + rank() * slice != in)
    std::copy_n(in, window, out + rank() * slice);
  if (key.kind == Collective::all_to_all)
    std::copy_n(in + rank() * slice, window, out + rank() * slice);
  if (key.kind == Collective::exchange_rows)
    std::copy_n(in + op.rows.sent_before(rank(), rank()) * element,
                op.rows.within(rank(), rank(), begin_, end_ - begin_) * element,
                out + op.rows.received_before(rank(), rank()) * element);
}

// Adds this rank's share of the window. All peers' elements have arrived.
void MpiComm::add_up(const Operation& op) {
  const bool scatter = op.key.kind == Collective::reduce_scatter;
  const int64_t element = size_of(op.key.dtype);
  const auto [first, last] = share(op, rank());
  const int64_t bytes = (last - first) * element;
  std::byte* out = op.out + (begin_ + first) * element;
  for (int r = 0; r < size(); ++r) sources_[static_cast<size_t>(r)] = received_.data() + r * bytes;
  sources_[static_cast<size_t>(rank())] =
      op.in + (begin_ + first + (scatter ? rank() * op.key.elements : 0)) * element;
  sum_in_order(op.key.dtype, sources_, {&out, 1}, last - first);
}

// Sends the finished share of an all-reduce to all peers and receives theirs.
void MpiComm::exchange_sums(const Operation& op) {
  const int64_t element = size_of(op.key.dtype);
  const auto [own_first, own_last] = share(op, rank());
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    const auto [first, last] = share(op, r);
    messages_.receive(r, kDataTag, op.out + (begin_ + first) * element, (last - first) * element);
    messages_.send(r, kDataTag, op.out + (begin_ + own_first) * element,
                   (own_last - own_first) * element);
  }
}

void MpiComm::raise_abort(const std::string& reason) {
  own_reason_ = reason;
  own_abort_ = true;
  aborts_.send(reason);
}

std::optional<Abort> MpiComm::raised_abort() {
  if (own_abort_) return Abort{rank(), own_reason_};
  return aborts_.receive();
}

}  // namespace dstrain
