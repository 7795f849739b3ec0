#include "runtime/comm/hosts/host_comm.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "runtime/comm/lone_comm.h"
#include "runtime/comm/shared/shared_comm.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Where in a bounce buffer the leader writes a rank's result of a small scatter or all-to-all. The rank's source lies
// before it.
constexpr int64_t kResultOffset = SharedGroup::kBounceBytes / 2;
static_assert(4 * Packets::kMostBytes <= kResultOffset);

// The longest sleep of a rank that waits for ranks of its machine. An abort's message wakes no rank, and all
// ranks of the machine may sleep when it arrives.
constexpr std::chrono::milliseconds kLongestSleep{10};

// Ranks of other hosts with which this one shares a lane.
std::vector<int> partners_of(const HostMap& hosts, int rank) {
  std::set<int> partners;
  const int own = hosts.host_of(rank);
  for (int lane = 0; lane < hosts.lanes(); ++lane)
    for (int h = 0; h < hosts.hosts() && hosts.lane_rank(own, lane) == rank; ++h)
      if (h != own) partners.insert(hosts.lane_rank(h, lane));
  return {partners.begin(), partners.end()};
}

std::vector<int> ranks_elsewhere(const HostMap& hosts, int host) {
  std::vector<int> ranks;
  for (int r = 0; r < hosts.ranks(); ++r)
    if (hosts.host_of(r) != host) ranks.push_back(r);
  return ranks;
}

}  // namespace

HostComm::HostComm(std::unique_ptr<MpiSession> mpi, Peers peers, std::unique_ptr<SharedGroup> group,
                   const CommOptions& options, PartOf part, RegionView world_memory)
    : OrderedComm(mpi->rank(), mpi->size(), options, std::move(part)),
      mpi_(std::move(mpi)),
      peers_(std::move(peers)),
      hosts_(peers_.hosts()),
      host_(hosts_.host_of(rank())),
      group_(std::move(group)),
      arrivals_(*group_, kLongestSleep),
      delivery_(*group_, kLongestSleep),
      memory_(is_part() ? std::move(world_memory) : RegionView(regions_, *group_)),
      exchange_(*mpi_, hosts_),
      packets_(*mpi_, hosts_, sizeof(Header)),
      partners_(partners_of(hosts_, rank())),
      header_messages_(*mpi_, 2 * partners_.size()),
      // If the ranks do not do the same, a packet may come in a header's place.
      headers_(partners_.size() + 1, std::vector<std::byte>(packets_.most_bytes())),
      keys_(static_cast<size_t>(size())),
      aborts_(*mpi_, ranks_elsewhere(hosts_, host_), kAbortTag) {
  const auto here = static_cast<size_t>(group_->size());
  wholes_.places.resize(here);
  places_.wholes.resize(here);
  places_.slices.resize(here);
}

HostComm::~HostComm() {
  close();
}

Memory HostComm::allocate(int64_t bytes, const std::string& what) {
  check_can_allocate(what);
  try {
    return regions_.allocate(*this, *group_, peers_, bytes, what);
  } catch (const RunError& error) {
    fail(error.what());
  }
}

std::unique_ptr<Communicator> HostComm::open_part(std::unique_ptr<PartRendezvous> ranks) {
  Peers peers(*ranks, host_);
  const HostMap& hosts = peers.hosts();
  const bool one = hosts.hosts() == 1;
  std::string why;
  auto group = SharedGroup::open(
      *ranks, peers,
      std::max(SharedGroup::kBounceBytes, one ? 0 : Exchange::least_bounce_bytes(hosts)), why);
  auto mpi = mpi_->split(one ? MpiSession::kNoPart : ranks->parent_rank(0));
  if (!group) fail(why.empty() ? "a peer cannot share memory any more" : why);
  PartOf part{this, ranks->world_ranks()};
  if (ranks->size() == 1) return std::make_unique<LoneComm>(std::move(part));
  RegionView memory = memory_.of_part(hosts_, *ranks, *group);
  if (one)
    return std::make_unique<SharedComm>(std::move(ranks), std::move(peers), std::move(group),
                                        CommOptions{}, std::move(part), std::move(memory));
  return std::make_unique<HostComm>(std::move(mpi), std::move(peers), std::move(group),
                                    CommOptions{}, std::move(part), std::move(memory));
}

Stages HostComm::run_small(Operation op) {
  const int own = group_->index();
  post(op);
  packets_.stage_in(op, whole_of(own, op.key.sequence));
  if (leads()) {
    group_->await_others();
    co_await arrivals_;
    exchange_packets(op.key);
    co_await packets_.messages();
    for (int h = 0; h < hosts_.hosts(); ++h) note_keys(h, packets_.header(h));
    compare_keys(keys_);
    packets_.unpack(op.key, places_);
    group_->arrive();
  } else {
    group_->arrive_at(0);
    delivery_.expect(op.key);
    co_await delivery_;
  }
  packets_.stage_out(op, whole_of(own, op.key.sequence), scattered_of(own));
}

Stages HostComm::run_large(Operation op) {
  post(op);
  group_->arrive();
  co_await arrivals_;
  exchange_headers(op.key);
  co_await header_messages_;
  for (size_t i = 0; i < headers_.size(); ++i)
    note_keys(i < partners_.size() ? hosts_.host_of(partners_[i]) : host_, headers_[i].data());
  compare_keys(keys_);
  find_tensors(op.key);
  exchange_.begin(op);
  const bool any_staged = wholes_.any_staged();
  for (wholes_.set_chunk(0);; wholes_.set_chunk(wholes_.end)) {
    if (any_staged) {
      stage_in(op);
      group_->arrive();
      co_await arrivals_;
    }
    exchange_.run(wholes_);
    while (!exchange_.done()) co_await exchange_;
    group_->arrive();
    co_await arrivals_;
    stage_out(op);
    if (wholes_.end == wholes_.elements) co_return;
  }
}

// Tells the ranks of this machine what this rank does and where its whole tensor lies.
void HostComm::post(const Operation& op) {
  const OpKey& key = op.key;
  Posting& posting = group_->posting(key.sequence);
  posting.key = key;
  posting.place = {};
  // A scatter and a gather have two tensors; the slice is used by this rank alone, as is what an all-to-all
  // writes.
  const std::byte* whole = key.kind == Collective::all_gather ? op.out : op.in;
  const bool rows = key.kind == Collective::exchange_rows;
  const int64_t elements =
      rows ? op.rows.sent(rank()) : key.elements * (is_sliced(key.kind) ? size() : 1);
  const int64_t bytes = elements * size_of(key.dtype);
  if (has_tensor(key.kind) && bytes > 0) posting.place = memory_.place_of(whole, bytes);
  check(!rows || posting.place.region != TensorPlace::kStaged,
        "rows are exchanged in the world's memory");
  if (key.kind == Collective::gather_values) posting.place = {TensorPlace::kStaged, 0};
}

// Where the whole tensor of this machine's `i`-th rank lies.
std::byte* HostComm::whole_of(int i, int64_t sequence) {
  const TensorPlace place = group_->posting(i, sequence).place;
  return place.region >= 0 ? memory_.address(place, i) : group_->bounce(i);
}

std::byte* HostComm::scattered_of(int i) const {
  return group_->bounce(i) + kResultOffset;
}

// All ranks of this machine have posted.
void HostComm::exchange_packets(const OpKey& key) {
  for (int i = 0; i < group_->size(); ++i) {
    places_.wholes[static_cast<size_t>(i)] = whole_of(i, key.sequence);
    places_.slices[static_cast<size_t>(i)] = scattered_of(i);
  }
  const Header header = own_header(key);
  const bool agreed = header.other_rank < 0;  // else what they give has no common size
  packets_.exchange(key, agreed ? &places_ : nullptr, std::as_bytes(std::span(&header, 1)),
                    kHeaderTag);
}

HostComm::Header HostComm::own_header(const OpKey& key) {
  Header header;
  header.leader = group_->posting(0, key.sequence).key;
  for (int i = 1; i < group_->size() && header.other_rank < 0; ++i) {
    const OpKey& other = group_->posting(i, key.sequence).key;
    if (other == header.leader) continue;
    header.other = other;
    header.other_rank = group_->rank_of(i);
  }
  return header;
}

// All ranks of this machine have posted: tells the other hosts what they do.
void HostComm::exchange_headers(const OpKey& key) {
  const Header own = own_header(key);
  std::memcpy(headers_.back().data(), &own, sizeof own);
  for (size_t i = 0; i < partners_.size(); ++i) {
    header_messages_.receive(partners_[i], kHeaderTag, headers_[i].data(),
                             static_cast<int64_t>(headers_[i].size()));
    header_messages_.send(partners_[i], kHeaderTag, headers_.back().data(), sizeof own);
  }
}

void HostComm::note_keys(int host, const std::byte* bytes) {
  Header header;
  std::memcpy(&header, bytes, sizeof header);
  for (const int r : hosts_.ranks_of(host)) keys_[static_cast<size_t>(r)] = header.leader;
  if (header.other_rank >= 0) keys_[static_cast<size_t>(header.other_rank)] = header.other;
}

// Reads from the postings where the tensors of this machine lie.
void HostComm::find_tensors(const OpKey& key) {
  for (int i = 0; i < group_->size(); ++i)
    wholes_.places[static_cast<size_t>(i)] = {
        whole_of(i, key.sequence),
        group_->posting(i, key.sequence).place.region == TensorPlace::kStaged};
  wholes_.element = size_of(key.dtype);
  wholes_.elements = wholes_.chunk = key.elements;
  if (!wholes_.any_staged()) return;
  const int64_t most =
      group_->bounce_bytes() / wholes_.element / (is_sliced(key.kind) ? size() : 1);
  const int64_t window = exchange_.window_elements(key);
  wholes_.chunk = most / window * window;
}

// A gather's slice and the tensors that a broadcast fills are not read through the bounce buffers.
void HostComm::stage_in(const Operation& op) {
  const Collective kind = op.key.kind;
  const bool reads =
      is_sum(kind) || kind == Collective::all_to_all || (is_copy(kind) && op.key.root == rank());
  if (reads && wholes_.staged(group_->index()))
    wholes_.stage_in(group_->index(), op.in, source_slices(kind, size()));
}

// A scatter's slice, an all-to-all's result and a broadcast's source are not written through them.
void HostComm::stage_out(const Operation& op) {
  const Collective kind = op.key.kind;
  const bool writes = kind == Collective::all_reduce || kind == Collective::all_gather ||
                      (is_copy(kind) && op.key.root != rank());
  if (writes && wholes_.staged(group_->index()))
    wholes_.stage_out(group_->index(), op.out, result_slices(kind, size()));
}

// Ranks of this machine that wait for this one learn which rank of another machine it waits for.
void HostComm::note_waited_rank(int peer) {
  group_->set_waits_for(peer >= 0 && hosts_.host_of(peer) != host_ ? peer : -1);
}

void HostComm::raise_here(int rank, const std::string& reason) {
  const std::lock_guard lock(abort_mutex_);
  if (!raised_here_) group_->raise_abort(rank, reason);
  raised_here_ = true;
}

void HostComm::raise_abort(const std::string& reason) {
  // First to the other machines: a rank of this one may end as soon as it knows, and would be blamed there.
  aborts_.send(reason);
  raise_here(rank(), reason);
}

std::optional<Abort> HostComm::raised_abort() {
  if (!group_->aborted()) {
    // Raised in the group as well, because the other ranks of this machine may sleep.
    const std::optional<Abort> remote = aborts_.receive();
    if (remote) raise_here(remote->rank, remote->reason);
  }
  return group_->raised_abort();
}

}  // namespace dstrain
