#include "runtime/comm/shared/shared_comm.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/comm/lone_comm.h"
#include "runtime/comm/sums.h"
#include "runtime/core/error.h"
#include "runtime/core/threads/parts.h"

namespace dstrain {
namespace {

constexpr int64_t kPieceBytes = int64_t{1} << 20;     // a thread's work between two pauses
constexpr int64_t kParallelBytes = int64_t{1} << 18;  // less is one thread's work

// Elements [first, second) of n that rank `r` of `size` adds: whole cache lines but for the end.
std::pair<int64_t, int64_t> share_of(int64_t n, int64_t element_bytes, int r, int size) {
  const int64_t per_line = kCacheLine / element_bytes;
  const int64_t lines = (n + per_line - 1) / per_line;
  const int64_t share = (lines + size - 1) / size * per_line;
  return {std::min(n, share * r), std::min(n, share * (r + 1))};
}

}  // namespace

SharedComm::SharedComm(std::unique_ptr<Rendezvous> ranks, Peers peers,
                       std::unique_ptr<SharedGroup> group, const CommOptions& options, PartOf part,
                       RegionView world_memory)
    : OrderedComm(ranks->rank(), ranks->size(), options, std::move(part)),
      ranks_(std::move(ranks)),
      peers_(std::move(peers)),
      group_(std::move(group)),
      // An abort wakes the sleepers of the world only.
      arrivals_(*group_, std::chrono::milliseconds(is_part() ? 10 : 100)),
      memory_(is_part() ? std::move(world_memory) : RegionView(regions_, *group_)),
      keys_(static_cast<size_t>(size())) {
  sources_.places.resize(static_cast<size_t>(size()));
}

SharedComm::~SharedComm() {
  close();
}

Memory SharedComm::allocate(int64_t bytes, const std::string& what) {
  check_can_allocate(what);
  try {
    return regions_.allocate(*this, *group_, peers_, bytes, what);
  } catch (const RunError& error) {
    fail(error.what());
  }
}

std::unique_ptr<Communicator> SharedComm::open_part(std::unique_ptr<PartRendezvous> ranks) {
  Peers peers(*ranks, 0);
  std::string why;
  auto group = SharedGroup::open(*ranks, peers, SharedGroup::kBounceBytes, why);
  if (!group) fail(why.empty() ? "a peer cannot share memory any more" : why);
  PartOf part{this, ranks->world_ranks()};
  if (ranks->size() == 1) return std::make_unique<LoneComm>(std::move(part));
  RegionView memory = memory_.of_part(peers_.hosts(), *ranks, *group);
  return std::make_unique<SharedComm>(std::move(ranks), std::move(peers), std::move(group),
                                      CommOptions{}, std::move(part), std::move(memory));
}

Stages SharedComm::run(Operation op) {
  post(op);
  group_->arrive();
  co_await arrivals_;
  read_postings(op.key);
  if (op.key.kind == Collective::gather_values)
    for (int r = 0; r < size(); ++r)
      std::copy_n(group_->posting(r, op.key.sequence).values.begin(), op.key.elements,
                  op.all_values.begin() + r * op.key.elements);
  if (!has_tensor(op.key.kind)) co_return;
  if (op.key.kind == Collective::exchange_rows) {
    for (int r = 0; r < size(); ++r)
      for (int64_t position = 0; !take_rows(op, r, position);) co_await Stages::Pause();
    group_->arrive();
    co_await arrivals_;
    co_return;
  }
  while (true) {
    for (int64_t position = 0; !work(op, position);) co_await Stages::Pause();
    group_->arrive();
    const bool last = sources_.end == op.key.elements;
    // What a copy's receiver has taken no peer reads: it need not wait until the root looks again.
    if (last && is_copy(op.key.kind) && op.key.root != rank()) co_return;
    co_await arrivals_;
    if (op.key.kind == Collective::all_reduce && sources_.staged(rank()))
      sources_.stage_out(rank(), op.out, 1);
    if (last) co_return;
    sources_.set_chunk(sources_.end);
    stage_in(op);
    group_->arrive();
    co_await arrivals_;
  }
}

TensorPlace SharedComm::place_of(const Operation& op) const {
  const OpKey& key = op.key;
  const bool rows = key.kind == Collective::exchange_rows;
  const int64_t elements =
      rows ? op.rows.sent(rank()) : key.elements * source_slices(key.kind, size());
  const int64_t bytes = elements * size_of(key.dtype);
  if (!has_tensor(key.kind) || bytes == 0) return {};
  if (is_copy(key.kind) && key.root != rank()) return {};
  const TensorPlace place = memory_.place_of(op.in, bytes);
  check(!rows || place.region != TensorPlace::kStaged, "rows are exchanged in the world's memory");
  return place;
}

bool SharedComm::take_rows(const Operation& op, int from, int64_t& position) const {
  const int64_t element = size_of(op.key.dtype);
  const int64_t total = op.rows.elements(from, rank()) * element;
  const int64_t begin = position, end = position = std::min(total, begin + kPieceBytes * threads());
  const std::byte* const source =
      sources_.places[static_cast<size_t>(from)].base + op.rows.sent_before(from, rank()) * element;
  std::byte* const to = op.out + op.rows.received_before(from, rank()) * element;
  const int64_t parts = end - begin >= kParallelBytes ? threads() : 1;
  const int64_t part = (end - begin + parts * kCacheLine - 1) / (parts * kCacheLine) * kCacheLine;
  run_parts(parts, [&](int64_t p) {
    const int64_t first = std::min(end, begin + p * part), last = std::min(end, first + part);
    if (first < last) std::memcpy(to + first, source + first, static_cast<size_t>(last - first));
  });
  return position >= total;
}

// Tells the peers what this rank does and where its source lies; stages the first chunk already.
void SharedComm::post(const Operation& op) {
  const OpKey& key = op.key;
  Posting& posting = group_->posting(key.sequence);
  posting.key = key;
  posting.place = place_of(op);
  std::copy(op.values.begin(), op.values.end(), posting.values.begin());
  sources_.element = size_of(key.dtype);
  sources_.elements = key.elements;
  sources_.chunk = SharedGroup::kBounceBytes / sources_.element / source_slices(key.kind, size()) /
                   kCacheLine * kCacheLine;
  sources_.set_chunk(0);
  sources_.places[static_cast<size_t>(rank())] = {group_->bounce(rank()),
                                                  posting.place.region == TensorPlace::kStaged};
  stage_in(op);
}

// All ranks have posted.
void SharedComm::read_postings(const OpKey& key) {
  for (int r = 0; r < size(); ++r) {
    const auto i = static_cast<size_t>(r);
    const Posting& posting = group_->posting(r, key.sequence);
    const TensorPlace place = posting.place;
    keys_[i] = posting.key;
    const bool staged = place.region == TensorPlace::kStaged;
    sources_.places[i] = {staged              ? group_->bounce(r)
                          : place.region >= 0 ? memory_.address(place, r)
                                              : nullptr,
                          staged};
  }
  compare_keys(keys_);
  if (sources_.any_staged()) return;
  sources_.chunk = key.elements;
  sources_.set_chunk(0);
}

void SharedComm::stage_in(const Operation& op) {
  if (sources_.staged(rank())) sources_.stage_in(rank(), op.in, source_slices(op.key.kind, size()));
}

bool SharedComm::work(const Operation& op, int64_t& position) {
  const int64_t element = size_of(op.key.dtype);
  const int64_t chunk = sources_.end - sources_.begin;
  int64_t total = 0, limit = 0;  // bytes of this chunk's work; end of this piece
  switch (op.key.kind) {
    case Collective::all_reduce: {
      const auto [first, last] = share_of(chunk, element, rank(), size());
      total = limit = (last - first) * element;
      break;
    }
    case Collective::reduce_scatter:
      total = limit = chunk * element;
      break;
    case Collective::all_gather:  // one rank's slice after another
    case Collective::all_to_all:
      total = chunk * element * size();
      if (total > 0) limit = (position / (chunk * element) + 1) * chunk * element;
      break;
    case Collective::broadcast:
    case Collective::message:
      total = limit = op.key.root == rank() ? 0 : chunk * element;
      break;
    case Collective::exchange_rows:
    case Collective::barrier:
    case Collective::gather_values:
      break;
  }
  if (position < total) {
    const int64_t begin = position;
    const int64_t end = position = std::min(limit, begin + kPieceBytes * threads());
    const int64_t parts = end - begin >= kParallelBytes ? threads() : 1;
    const int64_t part = (end - begin + parts * kCacheLine - 1) / (parts * kCacheLine) * kCacheLine;
    run_parts(parts, [&](int64_t p) {
      const int64_t from = std::min(end, begin + p * part);
      const int64_t to = std::min(end, from + part);
      if (from < to) work_range(op, from, to);
    });
  }
  return position >= total;
}

void SharedComm::work_range(const Operation& op, int64_t from, int64_t to) {
  const int64_t element = size_of(op.key.dtype);
  const auto bytes = static_cast<size_t>(to - from);
  const int64_t chunk_bytes = (sources_.end - sources_.begin) * element;
  // Where this chunk of slice `slice` of rank r's source begins.
  const auto source = [&](int r, int64_t slice) {
    return sources_.address(r, slice, sources_.begin);
  };
  switch (op.key.kind) {
    case Collective::all_reduce:
    case Collective::reduce_scatter: {
      const bool scatter = op.key.kind == Collective::reduce_scatter;
      const int64_t first =
          scatter ? 0 : share_of(sources_.end - sources_.begin, element, rank(), size()).first;
      std::array<std::byte*, kMaxRanks> places;
      for (int r = 0; r < size(); ++r)
        places[static_cast<size_t>(r)] = source(r, scatter ? rank() : 0) + first * element + from;
      const std::span<std::byte*> all(places.data(), static_cast<size_t>(size()));
      std::byte* const slice = op.out + sources_.begin * element + from;
      sum_in_order(op.key.dtype, {all.data(), all.size()},
                   scatter ? std::span<std::byte* const>(&slice, 1) : all, (to - from) / element);
      break;
    }
    case Collective::all_gather:
    case Collective::all_to_all: {
      const int64_t slice = op.key.kind == Collective::all_to_all ? rank() : 0;
      const auto r = static_cast<int>(from / chunk_bytes);
      const int64_t offset = from - r * chunk_bytes;
      std::byte* to_place = op.out + (r * op.key.elements + sources_.begin) * element + offset;
      const std::byte* from_place =
          r == rank() ? op.in + (slice * op.key.elements + sources_.begin) * element + offset
                      : source(r, slice) + offset;
      if (to_place != from_place) std::memcpy(to_place, from_place, bytes);
      break;
    }
    case Collective::broadcast:
    case Collective::message:
      std::memcpy(op.out + sources_.begin * element + from, source(op.key.root, 0) + from, bytes);
      break;
    case Collective::exchange_rows:
    case Collective::barrier:
    case Collective::gather_values:
      break;
  }
}

}  // namespace dstrain
