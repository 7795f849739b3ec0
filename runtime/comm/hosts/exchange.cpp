#include "runtime/comm/hosts/exchange.h"

#include <algorithm>
#include <cstring>

#include "runtime/comm/mpi/message_sleep.h"
#include "runtime/comm/sums.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kMostWindowBytes = int64_t{256} << 10;
constexpr int64_t kLeastWindowBytes = int64_t{16} << 10;
// Bounds the windows of large worlds, in which a finisher may hold a window of every rank.
constexpr int64_t kMostBufferBytes = int64_t{256} << 20;

// Tags say which window and which of its messages: the running sum, the result, or raw elements by index in
// the host.
constexpr int kFirstTag = 16, kRunning = 0, kResult = 1, kRaw = 2;

// A window keeps its buffers from its first hop to its last.
int most_windows(const HostMap& hosts) {
  return std::clamp(2 * hosts.hosts() + 4, 16, 24);
}

int64_t window_bytes_for(const HostMap& hosts) {
  int64_t bytes = kMostWindowBytes;
  while (bytes > kLeastWindowBytes &&
         most_windows(hosts) * (3 + hosts.ranks()) * bytes > kMostBufferBytes)
    bytes /= 2;
  return bytes;
}

}  // namespace

int64_t Exchange::least_bounce_bytes(const HostMap& hosts) {
  return window_bytes_for(hosts) * hosts.ranks();
}

Exchange::Exchange(const MpiSession& mpi, const HostMap& hosts)
    : hosts_(&hosts),
      comm_(mpi.comm()),
      rank_(mpi.rank()),
      host_(hosts.host_of(rank_)),
      index_(hosts.index_of(rank_)),
      window_bytes_(window_bytes_for(hosts)),
      tags_(kFirstTag, mpi.tag_bound(), kRaw + hosts.lanes()),
      requests_per_window_(hosts.ranks() + 2) {
  for (const bool scattered : {false, true})
    for (const int ratio : {1, 2}) routes_.emplace_back(hosts, ratio, scattered);
  windows_.resize(static_cast<size_t>(most_windows(hosts)));
  const int64_t bytes_each = (3 + hosts.ranks() - hosts.ranks_on(host_)) * window_bytes_;
  buffers_ = Memory::anonymous(static_cast<int64_t>(windows_.size()) * bytes_each,
                               "messages between hosts");
  std::byte* at = buffers_.data();
  for (OpenWindow& window : windows_) {
    window.running = at;
    window.relayed = at + 2 * window_bytes_;
    window.raw = at + 3 * window_bytes_;
    at += bytes_each;
  }
  const size_t requests = windows_.size() * static_cast<size_t>(requests_per_window_);
  requests_.assign(requests, MPI_REQUEST_NULL);
  peers_.resize(requests);
  completed_.resize(requests);
}

int64_t Exchange::window_elements(const OpKey& key) const {
  const int64_t element = size_of(key.dtype);
  // At least a few windows for each lane, so that every link is busy soon.
  const int64_t few = is_sliced(key.kind) ? 4 : 4 * hosts_->lanes();
  const int64_t bytes = std::clamp(key.elements * element / few, kLeastWindowBytes, window_bytes_);
  return bytes / kCacheLine * kCacheLine / element;
}

void Exchange::begin(const Operation& op) {
  const OpKey& key = op.key;
  slice_ = key.kind == Collective::all_gather ? op.in : op.out;
  first_number_ += operation_windows_;
  key_ = key;
  rows_ = op.rows;
  window_elements_ = window_elements(key);
  const int slices = is_sliced(key.kind) ? hosts_->ranks() : 1;
  operation_windows_ = (key.elements + window_elements_ - 1) / window_elements_ * slices;
  slices_.clear();
  for (int s = 0; s < slices; ++s)
    if (!is_sliced(key.kind) || hosts_->lane_rank(host_, hosts_->index_of(s)) == rank_)
      slices_.push_back(s);
}

void Exchange::run(const LocalTensors& wholes) {
  wholes_ = &wholes;
  next_begin_ = wholes.begin;
  next_slice_ = 0;
}

bool Exchange::done() const {
  return active_ == 0 && next_begin_ >= wholes_->end;
}

// Starts the next window of this rank's lanes, if there is one and buffers are free.
bool Exchange::start_next() {
  for (; next_begin_ < wholes_->end; next_begin_ += window_elements_, next_slice_ = 0) {
    for (; next_slice_ < slices_.size(); ++next_slice_) {
      const int slice = slices_[next_slice_];
      const int64_t index = next_begin_ / window_elements_;
      const int lane = is_sliced(key_.kind) ? hosts_->index_of(slice)
                                            : static_cast<int>(index % hosts_->lanes());
      if (hosts_->lane_rank(host_, lane) != rank_) continue;
      const auto free =
          std::find_if(windows_.begin(), windows_.end(),
                       [](const OpenWindow& window) { return window.phase == Phase::idle; });
      if (free == windows_.end()) return false;
      const int64_t number =
          first_number_ + index * (is_sliced(key_.kind) ? hosts_->ranks() : 1) + slice;
      if (number - oldest_number(number) >= tags_.windows()) return false;
      ++next_slice_;
      OpenWindow& window = *free;
      window.phase = Phase::inputs;
      window.number = number;
      window.slice = slice;
      window.lane = lane;
      window.begin = next_begin_;
      window.n = std::min(window_elements_, wholes_->end - next_begin_);
      window.leg = leg_of(index, slice);
      window.used = 0;
      ++active_;
      start_inputs(window);
      move_on(window);
      return true;
    }
  }
  return false;
}

// Returns the least number of the windows under way, or `otherwise` if there is none.
int64_t Exchange::oldest_number(int64_t otherwise) const {
  for (const OpenWindow& window : windows_)
    if (window.phase != Phase::idle) otherwise = std::min(otherwise, window.number);
  return otherwise;
}

Leg Exchange::leg_of(int64_t window, int slice) const {
  if (key_.kind == Collective::all_gather)
    return leg_of_copy(*hosts_, host_, hosts_->host_of(slice));
  if (is_exchange(key_.kind)) return leg_of_exchange(*hosts_, host_, hosts_->host_of(slice));
  if (is_copy(key_.kind)) return leg_of_copy(*hosts_, host_, hosts_->host_of(key_.root));
  const size_t wider = size_of(running_dtype(key_.dtype)) > size_of(key_.dtype) ? 1 : 0;
  if (key_.kind == Collective::reduce_scatter)
    return routes_[2 + wider].of_sum(host_, window, hosts_->host_of(slice));
  // The windows of one lane take turns among the finishers.
  return routes_[wider].of_sum(host_, window / hosts_->lanes(), Routes::kAllHosts);
}

bool Exchange::ready() {
  return advance() || done();
}

bool Exchange::advance() {
  bool moved = start_next();
  if (active_ == 0) return moved;
  int count = 0;
  check_mpi(MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                         completed_.data(), MPI_STATUSES_IGNORE),
            "MPI_Testsome");
  for (int i = 0; count != MPI_UNDEFINED && i < count; ++i) {
    OpenWindow& window =
        windows_[static_cast<size_t>(completed_[static_cast<size_t>(i)] / requests_per_window_)];
    --window.pending;
    move_on(window);
    moved = true;
  }
  return moved;
}

// Enters the next phases, up to one that has messages to wait for.
void Exchange::move_on(OpenWindow& window) {
  while (window.pending == 0 && window.phase != Phase::idle) {
    window.used = 0;
    if (window.phase == Phase::inputs) {
      window.phase = Phase::sums;
      start_sums(window);
    } else if (window.phase == Phase::sums) {
      window.phase = Phase::results;
      start_results(window);
    } else {
      window.phase = Phase::idle;
      --active_;
    }
  }
}

void Exchange::start_inputs(OpenWindow& window) {
  const Leg& leg = window.leg;
  if (leg.running_from >= 0)
    receive(window, leg.running_from, kRunning, window.running,
            window.n * size_of(running_dtype(key_.dtype)));
  for (int h = leg.raw_begin; h < leg.raw_end; ++h)
    for (size_t i = 0; leg.takes_raw_from(h, host_) && i < hosts_->ranks_of(h).size(); ++i) {
      const int from = hosts_->ranks_of(h)[i];
      if (const int64_t n = elements_of(window, from); n > 0)
        receive(window, h, kRaw + static_cast<int>(i), raw_buffer(window, from),
                n * wholes_->element);
    }
  for (int i = 0; leg.raw_to >= 0 && i < hosts_->ranks_on(host_); ++i) {
    const int64_t n = elements_of(window, hosts_->ranks_of(host_)[static_cast<size_t>(i)]);
    if (n > 0) send(window, leg.raw_to, kRaw + i, source_of(window, i), n * wholes_->element);
  }
}

int64_t Exchange::elements_of(const OpenWindow& window, int rank) const {
  return key_.kind == Collective::exchange_rows
             ? rows_.within(rank, window.slice, window.begin, window.n)
             : window.n;
}

const std::byte* Exchange::source_of(const OpenWindow& window, int local) const {
  if (key_.kind != Collective::exchange_rows)
    return wholes_->address(local, window.slice, window.begin);
  const int rank = hosts_->ranks_of(host_)[static_cast<size_t>(local)];
  return wholes_->places[static_cast<size_t>(local)].base +
         (rows_.sent_before(rank, window.slice) + window.begin) * wholes_->element;
}

// All inputs have arrived, and this host's raw elements have been sent, so that results may replace them.
void Exchange::start_sums(OpenWindow& window) {
  const Leg& leg = window.leg;
  if (is_sum(key_.kind)) {
    if (leg.finishes || leg.running_to >= 0) add_up(window);
  } else if (is_exchange(key_.kind)) {
    for (int i = 0; leg.finishes && i < hosts_->ranks_on(host_); ++i) {
      const int from = hosts_->ranks_of(host_)[static_cast<size_t>(i)];
      if (const int64_t n = elements_of(window, from); n > 0)
        std::memcpy(exchanged(window, from), source_of(window, i),
                    static_cast<size_t>(n * wholes_->element));
    }
  } else if (leg.finishes) {
    window.result = key_.kind == Collective::all_gather
                        ? slice_ + window.begin * wholes_->element
                        : wholes_->address(hosts_->index_of(key_.root), 0, window.begin);
  }
  if (leg.running_to >= 0)
    send(window, leg.running_to, kRunning, window.running,
         window.n * size_of(running_dtype(key_.dtype)));
  if (leg.result_from >= 0) {
    std::byte* result = destination(window, index_);
    receive(window, leg.result_from, kResult, result, window.n * wholes_->element);
    window.result = result;
  }
}

// The result has arrived on this host, if it is to.
void Exchange::start_results(OpenWindow& window) {
  const Leg& leg = window.leg;
  const int64_t bytes = window.n * wholes_->element;
  if (leg.result_to >= 0) send(window, leg.result_to, kResult, window.result, bytes);
  // add_up() has written a sum to all its places; a scattered one has no other place.
  if ((is_sum(key_.kind) && leg.finishes) || key_.kind == Collective::reduce_scatter ||
      is_exchange(key_.kind))
    return;
  for (int i = 0; i < hosts_->ranks_on(host_); ++i) {
    std::byte* place = destination(window, i);
    if (place != window.result) std::memcpy(place, window.result, static_cast<size_t>(bytes));
  }
}

// Returns where the `local`-th rank of this machine needs the result.
std::byte* Exchange::destination(const OpenWindow& window, int local) const {
  if (key_.kind == Collective::reduce_scatter) return slice_ + window.begin * wholes_->element;
  return wholes_->address(local, window.slice, window.begin);
}

void Exchange::add_up(OpenWindow& window) {
  const Leg& leg = window.leg;
  sources_.clear();
  for (int r = 0; r < hosts_->ranks(); ++r) {
    const int h = hosts_->host_of(r);
    if (h == host_)
      sources_.push_back(wholes_->address(hosts_->index_of(r), window.slice, window.begin));
    else if (leg.takes_raw_from(h, host_))
      sources_.push_back(raw_buffer(window, r));
  }
  const std::byte* before = leg.running_from >= 0 ? window.running : nullptr;
  if (!leg.finishes) {
    running_sum(key_.dtype, sources_, window.running, window.n, before);
    return;
  }
  places_.clear();
  if (!leg.keeps)
    places_.push_back(window.relayed);
  else if (key_.kind == Collective::reduce_scatter)
    places_.push_back(destination(window, index_));
  else
    for (int i = 0; i < hosts_->ranks_on(host_); ++i) places_.push_back(destination(window, i));
  sum_in_order(key_.dtype, sources_, places_, window.n, before);
  window.result = places_.front();
}

// Returns where this rank wants what `rank` sends it of an all-to-all.
std::byte* Exchange::exchanged(const OpenWindow& window, int rank) const {
  const int64_t first = key_.kind == Collective::exchange_rows
                            ? rows_.received_before(rank, window.slice)
                            : rank * key_.elements;
  return slice_ + (first + window.begin) * wholes_->element;
}

std::byte* Exchange::raw_buffer(const OpenWindow& window, int rank) const {
  if (is_exchange(key_.kind)) return exchanged(window, rank);
  const std::span<const int> own = hosts_->ranks_of(host_);
  const auto before = std::lower_bound(own.begin(), own.end(), rank) - own.begin();
  return window.raw + (rank - before) * window_bytes_;
}

MPI_Request* Exchange::next_request(OpenWindow& window, int peer) {
  const auto at =
      static_cast<size_t>((&window - windows_.data()) * requests_per_window_ + window.used);
  ++window.used;
  ++window.pending;
  peers_[at] = peer;
  return &requests_[at];
}

void Exchange::send(OpenWindow& window, int host, int what, const std::byte* data, int64_t bytes) {
  const int peer = hosts_->lane_rank(host, window.lane);
  check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, tags_.tag(window.number, what),
                      comm_, next_request(window, peer)),
            "MPI_Isend");
}

void Exchange::receive(OpenWindow& window, int host, int what, std::byte* data, int64_t bytes) {
  const int peer = hosts_->lane_rank(host, window.lane);
  check_mpi(MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, tags_.tag(window.number, what),
                      comm_, next_request(window, peer)),
            "MPI_Irecv");
}

void Exchange::sleep(int earlier, std::chrono::microseconds longest) {
  sleep_for_messages(earlier, longest);
}

int Exchange::waited_rank() {
  int64_t oldest = -1;
  int rank = -1;
  for (size_t i = 0; i < requests_.size(); ++i) {
    const OpenWindow& window = windows_[i / static_cast<size_t>(requests_per_window_)];
    if (requests_[i] == MPI_REQUEST_NULL || (oldest >= 0 && window.number >= oldest)) continue;
    oldest = window.number;
    rank = peers_[i];
  }
  return rank;
}

}  // namespace dstrain
