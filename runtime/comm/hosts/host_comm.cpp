#include "runtime/comm/hosts/host_comm.h"

#include <sched.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// In a bounce buffer, beyond what a rank gives to a small operation: its slice of a scattered sum.
constexpr int64_t kResultOffset = SharedGroup::kBounceBytes / 2;
static_assert(4 * Packets::kMostBytes <= kResultOffset);

// Ranks of other hosts with which this one shares a lane.
std::vector<int> partners_of(const HostMap& hosts, int rank) {
  std::set<int> partners;
  const int own = hosts.host_of(rank);
  for (int lane = 0; lane < hosts.lanes(); ++lane)
    for (int h = 0; h < hosts.hosts() && hosts.lane_rank(own, lane) == rank; ++h)
      if (h != own) partners.insert(hosts.lane_rank(h, lane));
  return {partners.begin(), partners.end()};
}

}  // namespace

HostComm::HostComm(std::unique_ptr<MpiSession> mpi, Peers peers, std::unique_ptr<SharedGroup> group,
                   const CommOptions& options)
    : OrderedCommunicator(mpi->rank(), mpi->size(), options),
      mpi_(std::move(mpi)),
      peers_(std::move(peers)),
      hosts_(peers_.hosts()),
      host_(hosts_.host_of(rank())),
      group_(std::move(group)),
      exchange_(*mpi_, hosts_),
      packets_(*mpi_, hosts_, sizeof(Header)),
      partners_(partners_of(hosts_, rank())) {
  // Where the ranks do not do the same, a packet may come in a header's place.
  headers_.assign(partners_.size() + 1, std::vector<std::byte>(packets_.most_bytes()));
  header_requests_.assign(2 * partners_.size(), MPI_REQUEST_NULL);
  keys_.resize(static_cast<size_t>(size()));
  const auto here = static_cast<size_t>(group_->size());
  tensors_.wholes.resize(here);
  places_.wholes.resize(here);
  places_.slices.resize(here);
  abort_requests_.assign(static_cast<size_t>(size()), MPI_REQUEST_NULL);
}

HostComm::~HostComm() {
  close();
  // An abort may still be on its way: give it a moment, the process is about to end.
  for (int i = 0, done = 0; sent_ && !done && i < 200; ++i) {
    MPI_Testall(size(), abort_requests_.data(), &done, MPI_STATUSES_IGNORE);
    if (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Memory HostComm::allocate(int64_t bytes, const std::string& what) {
  try {
    return regions_.allocate(*this, *group_, peers_, bytes, what);
  } catch (const RunError& error) {
    fail(error.what());
  }
}

void HostComm::announce(const Operation& op) {
  const OpKey& key = op.key;
  Posting& posting = group_->posting(key.sequence);
  posting.key = key;
  posting.place = {};
  const bool scatter = key.kind == Collective::reduce_scatter;
  const bool gather = key.kind == Collective::all_gather;
  // A scatter's slice is written, a gather's read by its own rank alone.
  const std::byte* whole = gather ? op.out : op.in;
  const int64_t bytes = key.elements * size_of(key.dtype) * (scatter || gather ? size() : 1);
  if (has_tensor(key.kind) && bytes > 0) posting.place = regions_.place_of(whole, bytes);
  if (key.kind == Collective::gather_values) posting.place = {TensorPlace::kStaged, 0};
  if (!packets_.carry(key)) {
    group_->arrive();
    stage_ = Stage::gather;
    return;
  }
  packets_.give(op, whole_of(group_->index(), key.sequence));
  if (leads()) {
    group_->await_others();
    stage_ = Stage::collect;
  } else {
    group_->arrive_at(0);
    stage_ = Stage::delivery;
  }
}

// Where the tensor of this machine's `i`-th rank lies.
std::byte* HostComm::whole_of(int i, int64_t sequence) {
  const TensorPlace place = group_->posting(i, sequence).place;
  return place.region >= 0 ? regions_.address(place, i) : group_->bounce(i);
}

// All ranks of this machine are here.
void HostComm::exchange_packets(const Operation& op) {
  for (int i = 0; i < group_->size(); ++i) {
    places_.wholes[static_cast<size_t>(i)] = whole_of(i, op.key.sequence);
    places_.slices[static_cast<size_t>(i)] = group_->bounce(i) + kResultOffset;
  }
  const Header header = own_header(op.key);
  const bool agreed = header.other_rank < 0;  // else what they give has no common size
  packets_.exchange(op.key, agreed ? &places_ : nullptr, std::as_bytes(std::span(&header, 1)),
                    kHeaderTag);
}

HostComm::Header HostComm::own_header(const OpKey& key) {
  Header header;
  header.first = group_->posting(0, key.sequence).key;
  for (int i = 1; i < group_->size() && header.other_rank < 0; ++i) {
    const OpKey& other = group_->posting(i, key.sequence).key;
    if (other == header.first) continue;
    header.other = other;
    header.other_rank = group_->world_rank(i);
  }
  return header;
}

// All ranks of this machine are here: tells the other hosts what they do.
void HostComm::exchange_headers(const Operation& op) {
  const Header own = own_header(op.key);
  std::memcpy(headers_.back().data(), &own, sizeof own);
  for (size_t i = 0; i < partners_.size(); ++i) {
    check_mpi(MPI_Irecv(headers_[i].data(), static_cast<int>(headers_[i].size()), MPI_BYTE,
                        partners_[i], kHeaderTag, mpi_->comm(), &header_requests_[i]),
              "MPI_Irecv");
    check_mpi(MPI_Isend(headers_.back().data(), sizeof own, MPI_BYTE, partners_[i], kHeaderTag,
                        mpi_->comm(), &header_requests_[partners_.size() + i]),
              "MPI_Isend");
  }
}

bool HostComm::headers_done() {
  int done = 0;
  check_mpi(MPI_Testall(static_cast<int>(header_requests_.size()), header_requests_.data(), &done,
                        MPI_STATUSES_IGNORE),
            "MPI_Testall");
  return done != 0;
}

void HostComm::note_keys(int host, const std::byte* bytes) {
  Header header;
  std::memcpy(&header, bytes, sizeof header);
  for (const int r : hosts_.ranks_of(host)) keys_[static_cast<size_t>(r)] = header.first;
  if (header.other_rank >= 0) keys_[static_cast<size_t>(header.other_rank)] = header.other;
}

// What every host does is known.
void HostComm::meet() {
  for (size_t i = 0; i < headers_.size(); ++i)
    note_keys(i < partners_.size() ? hosts_.host_of(partners_[i]) : host_, headers_[i].data());
  compare_keys(keys_);
}

void HostComm::take(const Operation& op) {
  const int own = group_->index();
  packets_.take(op, whole_of(own, op.key.sequence), group_->bounce(own) + kResultOffset);
}

// False for a small operation whose result nobody brings, because the first rank of this machine does
// something else: it will say so.
bool HostComm::delivered(const Operation& op) {
  return stage_ != Stage::delivery || group_->posting(0, op.key.sequence).key == op.key;
}

// What every host does and gives is known.
void HostComm::finish_small(const Operation& op) {
  for (int h = 0; h < hosts_.hosts(); ++h) note_keys(h, packets_.header(h));
  compare_keys(keys_);
  packets_.unpack(op.key, places_);
  group_->arrive();
  take(op);
}

// Where the tensors of this machine lie.
void HostComm::lay_out(const Operation& op) {
  const OpKey& key = op.key;
  any_staged_ = false;
  for (int i = 0; i < group_->size(); ++i) {
    LocalTensors::Whole& whole = tensors_.wholes[static_cast<size_t>(i)];
    whole.staged = group_->posting(i, key.sequence).place.region == TensorPlace::kStaged;
    whole.base = whole_of(i, key.sequence);
    any_staged_ = any_staged_ || whole.staged;
  }
  tensors_.slice = key.kind == Collective::all_gather ? op.in : op.out;
  tensors_.element = size_of(key.dtype);
  tensors_.elements = key.elements;
  tensors_.chunk = key.elements;
  if (any_staged_) {
    const bool slices =
        key.kind == Collective::reduce_scatter || key.kind == Collective::all_gather;
    const int64_t most = group_->bounce_bytes() / tensors_.element / (slices ? size() : 1);
    const int64_t window = exchange_.window_elements(key);
    tensors_.chunk = most / window * window;
  }
  tensors_.end = 0;
  exchange_.begin(key);
}

void HostComm::next_chunk(const Operation& op) {
  tensors_.begin = tensors_.end;
  tensors_.end = std::min(tensors_.elements, tensors_.begin + tensors_.chunk);
  if (staged_here()) stage_in(op);
  if (any_staged_) group_->arrive();
  stage_ = any_staged_ ? Stage::ready : Stage::work;
  if (!any_staged_) exchange_.run(tensors_);
}

bool HostComm::staged_here() const {
  return tensors_.wholes[static_cast<size_t>(group_->index())].staged;
}

void HostComm::stage_in(const Operation& op) {
  const Collective kind = op.key.kind;
  if (kind == Collective::all_gather || (kind == Collective::broadcast && op.key.root != rank()))
    return;
  const int slices = kind == Collective::reduce_scatter ? size() : 1;
  for (int s = 0; s < slices; ++s)
    std::memcpy(tensors_.in_whole(group_->index(), s, tensors_.begin),
                op.in + (s * tensors_.elements + tensors_.begin) * tensors_.element,
                static_cast<size_t>((tensors_.end - tensors_.begin) * tensors_.element));
}

void HostComm::stage_out(const Operation& op) {
  const Collective kind = op.key.kind;
  if (kind == Collective::reduce_scatter ||
      (kind == Collective::broadcast && op.key.root == rank()))
    return;
  const int slices = kind == Collective::all_gather ? size() : 1;
  for (int s = 0; s < slices; ++s)
    std::memcpy(op.out + (s * tensors_.elements + tensors_.begin) * tensors_.element,
                tensors_.in_whole(group_->index(), s, tensors_.begin),
                static_cast<size_t>((tensors_.end - tensors_.begin) * tensors_.element));
}

OrderedCommunicator::Step HostComm::advance(Operation& op) {
  const bool blocked = local_stage()              ? !group_->all_here() || !delivered(op)
                       : stage_ == Stage::meet    ? !headers_done()
                       : stage_ == Stage::packets ? !packets_.arrived()
                       : stage_ == Stage::work    ? !exchange_.advance() && !exchange_.done()
                                                  : false;
  if (blocked) return Step::blocked;
  if (sleeps_ > 0) group_->set_waits_for(-1);
  sleeps_ = 0;
  switch (stage_) {
    case Stage::announce:
      announce(op);
      break;
    case Stage::collect:
      exchange_packets(op);
      stage_ = Stage::packets;
      break;
    case Stage::packets:
      finish_small(op);
      stage_ = Stage::announce;
      return Step::done;
    case Stage::delivery:
      take(op);
      stage_ = Stage::announce;
      return Step::done;
    case Stage::gather:
      exchange_headers(op);
      stage_ = Stage::meet;
      break;
    case Stage::meet:
      meet();
      lay_out(op);
      next_chunk(op);
      break;
    case Stage::ready:
      exchange_.run(tensors_);
      stage_ = Stage::work;
      break;
    case Stage::work:
      if (!exchange_.done()) break;
      group_->arrive();
      stage_ = Stage::settle;
      break;
    case Stage::settle:
      if (staged_here()) stage_out(op);
      if (tensors_.end == tensors_.elements) {
        stage_ = Stage::announce;
        return Step::done;
      }
      next_chunk(op);
      break;
  }
  return Step::moved;
}

// Whether this rank waits for ranks of its own machine.
bool HostComm::local_stage() const {
  return stage_ == Stage::gather || stage_ == Stage::ready || stage_ == Stage::settle ||
         stage_ == Stage::collect || stage_ == Stage::delivery;
}

// Messages need to be asked for, so no sleep is long: their arrival wakes nobody. Neither does an abort's,
// but who waits for ranks of this machine is woken by the first of them that learns of it.
void HostComm::sleep() {
  constexpr int kYields = 64;
  constexpr std::chrono::microseconds kShortest{20}, kLongest{500};
  if (local_stage()) {
    group_->sleep(std::chrono::milliseconds(10));
    ++sleeps_;
    return;
  }
  if (++sleeps_ % 64 == 0) group_->set_waits_for(waited_rank());
  if (sleeps_ <= kYields)
    ::sched_yield();
  else
    std::this_thread::sleep_for(std::min(kLongest, kShortest * (1 + (sleeps_ - kYields) / 8)));
}

int HostComm::waited_rank() {
  if (local_stage()) {
    const int lagging = group_->lagging();
    if (lagging < 0) return -1;
    // It may only wait itself.
    const int behind = group_->waits_for(lagging);
    return behind >= 0 ? behind : group_->world_rank(lagging);
  }
  if (stage_ == Stage::work) return exchange_.waited_rank();
  if (stage_ == Stage::packets) return packets_.waited_rank();
  for (size_t i = 0; i < header_requests_.size(); ++i)
    if (header_requests_[i] != MPI_REQUEST_NULL) return partners_[i % partners_.size()];
  return -1;
}

void HostComm::raise_abort(const std::string& reason) {
  const std::lock_guard lock(abort_mutex_);
  if (!raised_here_) group_->raise_abort(rank(), reason);
  raised_here_ = true;
  std::copy_n(reason.begin(), std::min(reason.size(), abort_reason_.size() - 1),
              abort_reason_.begin());
  sent_ = true;
  for (int r = 0; r < size(); ++r)
    if (hosts_.host_of(r) != host_)
      MPI_Isend(abort_reason_.data(), static_cast<int>(abort_reason_.size()), MPI_CHAR, r,
                kAbortTag, mpi_->comm(), &abort_requests_[static_cast<size_t>(r)]);
}

bool HostComm::abort_raised(Abort& abort) {
  int there = 0;
  MPI_Status status;
  if (!group_->aborted())
    check_mpi(MPI_Iprobe(MPI_ANY_SOURCE, kAbortTag, mpi_->comm(), &there, &status), "MPI_Iprobe");
  if (there) {
    // For all ranks of this machine, of which some may sleep.
    Reason reason{};
    check_mpi(MPI_Recv(reason.data(), static_cast<int>(reason.size()), MPI_CHAR, status.MPI_SOURCE,
                       kAbortTag, mpi_->comm(), MPI_STATUS_IGNORE),
              "MPI_Recv");
    const std::lock_guard lock(abort_mutex_);
    if (!raised_here_) group_->raise_abort(status.MPI_SOURCE, reason.data());
    raised_here_ = true;
  }
  if (!group_->aborted()) return false;
  const SharedGroup::Abort first = group_->abort();
  abort = {first.rank, first.reason};
  return true;
}

void HostComm::leave() {
  mpi_->leave();
}

}  // namespace dstrain
