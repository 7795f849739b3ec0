#include "runtime/comm/shared/shared_comm.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "runtime/comm/sums.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kPieceBytes = int64_t{1}
                                << 20;  // work between two looks at the clock, per thread
constexpr int64_t kParallelBytes = int64_t{1} << 18;

// Elements [first, second) of n that rank `r` of `size` adds: whole cache lines but for the end.
std::pair<int64_t, int64_t> share_of(int64_t n, int64_t element_bytes, int r, int size) {
  const int64_t per_line = kCacheLine / element_bytes;
  const int64_t lines = (n + per_line - 1) / per_line;
  const int64_t share = (lines + size - 1) / size * per_line;
  return {std::min(n, share * r), std::min(n, share * (r + 1))};
}

}  // namespace

SharedComm::SharedComm(std::unique_ptr<Rendezvous> ranks, Peers peers,
                       std::unique_ptr<SharedGroup> group, const CommOptions& options)
    : OrderedCommunicator(ranks->rank(), ranks->size(), options),
      ranks_(std::move(ranks)),
      peers_(std::move(peers)),
      group_(std::move(group)) {
  active_.sources.resize(static_cast<size_t>(size()));
  active_.staged.resize(static_cast<size_t>(size()));
  active_.keys.resize(static_cast<size_t>(size()));
}

SharedComm::~SharedComm() {
  close();
}

Memory SharedComm::allocate(int64_t bytes, const std::string& what) {
  try {
    return regions_.allocate(*this, *group_, peers_, bytes, what);
  } catch (const RunError& error) {
    fail(error.what());
  }
}

TensorPlace SharedComm::place_of(const Operation& op) const {
  const OpKey& key = op.key;
  const int64_t bytes =
      key.elements * size_of(key.dtype) * (key.kind == Collective::reduce_scatter ? size() : 1);
  if (!has_tensor(key.kind) || bytes == 0) return {};
  if (key.kind == Collective::broadcast && key.root != rank()) return {};
  return regions_.place_of(op.in, bytes);
}

void SharedComm::announce(const Operation& op) {
  const OpKey& key = op.key;
  Posting& posting = group_->posting(key.sequence);
  posting.key = key;
  posting.place = place_of(op);
  std::copy(op.values.begin(), op.values.end(), posting.values.begin());
  active_.staged_here = posting.place.region == TensorPlace::kStaged;
  const int64_t parts = key.kind == Collective::reduce_scatter ? size() : 1;
  active_.chunk = SharedGroup::kBounceBytes / size_of(key.dtype) / parts / kCacheLine * kCacheLine;
  set_window(op, 0);
  if (active_.staged_here) stage_in(op);
  group_->arrive();
}

void SharedComm::meet(const Operation& op) {
  bool any_staged = false;
  for (int r = 0; r < size(); ++r) {
    const auto i = static_cast<size_t>(r);
    const Posting& posting = group_->posting(r, op.key.sequence);
    const TensorPlace place = posting.place;
    active_.keys[i] = posting.key;
    active_.staged[i] = place.region == TensorPlace::kStaged;
    any_staged = any_staged || active_.staged[i];
    active_.sources[i] = place.region >= 0 ? regions_.address(place, r) : nullptr;
  }
  compare_keys(active_.keys);
  if (!any_staged) {
    active_.chunk = op.key.elements;
    set_window(op, 0);
  }
}

void SharedComm::set_window(const Operation& op, int64_t begin) {
  active_.begin = begin;
  active_.end = std::min(begin + active_.chunk, op.key.elements);
  active_.position = 0;
}

// Where element `begin` of slice `slice` (of a scatter; else 0) of rank r's source lies.
std::byte* SharedComm::source(const Operation& op, int r, int64_t slice) const {
  const auto i = static_cast<size_t>(r);
  const int64_t element = size_of(op.key.dtype);
  if (active_.staged[i]) return group_->bounce(r) + slice * active_.chunk * element;
  return active_.sources[i] + (slice * op.key.elements + active_.begin) * element;
}

void SharedComm::stage_in(const Operation& op) {
  const int64_t element = size_of(op.key.dtype);
  const auto bytes = static_cast<size_t>((active_.end - active_.begin) * element);
  const int64_t slices = op.key.kind == Collective::reduce_scatter ? size() : 1;
  for (int64_t q = 0; q < slices; ++q)
    std::memcpy(group_->bounce(rank()) + q * active_.chunk * element,
                op.in + (q * op.key.elements + active_.begin) * element, bytes);
}

void SharedComm::stage_out(const Operation& op) {
  const int64_t element = size_of(op.key.dtype);
  std::memcpy(op.out + active_.begin * element, group_->bounce(rank()),
              static_cast<size_t>((active_.end - active_.begin) * element));
}

bool SharedComm::work(const Operation& op) {
  const int64_t element = size_of(op.key.dtype);
  const int64_t window = active_.end - active_.begin;
  int64_t total = 0, limit = 0;  // bytes of this chunk's work; where this piece must end
  switch (op.key.kind) {
    case Collective::all_reduce: {
      const auto [first, last] = share_of(window, element, rank(), size());
      total = limit = (last - first) * element;
      break;
    }
    case Collective::reduce_scatter:
      total = limit = window * element;
      break;
    case Collective::all_gather:  // one rank's slice after the other
      total = window * element * size();
      if (total > 0) limit = (active_.position / (window * element) + 1) * window * element;
      break;
    case Collective::broadcast:
      total = limit = op.key.root == rank() ? 0 : window * element;
      break;
    case Collective::barrier:
    case Collective::gather_values:
      break;
  }
  if (active_.position < total) {
    const int64_t begin = active_.position;
    const int64_t end = std::min(limit, begin + kPieceBytes * threads());
    active_.position = end;
    const int64_t parts = end - begin >= kParallelBytes ? threads() : 1;
    const int64_t part = (end - begin + parts * kCacheLine - 1) / (parts * kCacheLine) * kCacheLine;
#pragma omp parallel for num_threads(static_cast <int>(parts)) if (parts > 1) schedule(static)
    for (int64_t p = 0; p < parts; ++p) {
      const int64_t from = std::min(end, begin + p * part);
      const int64_t to = std::min(end, from + part);
      if (from < to) work_range(op, from, to);
    }
  }
  return active_.position >= total;
}

void SharedComm::work_range(const Operation& op, int64_t from, int64_t to) {
  const int64_t element = size_of(op.key.dtype);
  const auto bytes = static_cast<size_t>(to - from);
  const int64_t window_bytes = (active_.end - active_.begin) * element;
  switch (op.key.kind) {
    case Collective::all_reduce:
    case Collective::reduce_scatter: {
      const bool scatter = op.key.kind == Collective::reduce_scatter;
      const int64_t first =
          scatter ? 0 : share_of(active_.end - active_.begin, element, rank(), size()).first;
      std::array<std::byte*, kMaxRanks> places;
      for (int r = 0; r < size(); ++r)
        places[static_cast<size_t>(r)] =
            source(op, r, scatter ? rank() : 0) + first * element + from;
      const std::span<std::byte*> all(places.data(), static_cast<size_t>(size()));
      std::byte* const slice = op.out + active_.begin * element + from;
      sum_in_order(op.key.dtype, {all.data(), all.size()},
                   scatter ? std::span<std::byte* const>(&slice, 1) : all, (to - from) / element);
      break;
    }
    case Collective::all_gather: {
      const auto r = static_cast<int>(from / window_bytes);
      const int64_t offset = from - r * window_bytes;
      std::byte* to_place = op.out + (r * op.key.elements + active_.begin) * element + offset;
      const std::byte* from_place =
          r == rank() ? op.in + active_.begin * element + offset : source(op, r, 0) + offset;
      if (to_place != from_place) std::memcpy(to_place, from_place, bytes);
      break;
    }
    case Collective::broadcast:
      std::memcpy(op.out + active_.begin * element + from, source(op, op.key.root, 0) + from,
                  bytes);
      break;
    case Collective::barrier:
    case Collective::gather_values:
      break;
  }
}

OrderedCommunicator::Step SharedComm::advance(Operation& op) {
  switch (active_.stage) {
    case Stage::announce:
      announce(op);
      active_.stage = Stage::gather;
      return Step::moved;
    case Stage::gather:
      if (!group_->all_here()) return Step::blocked;
      if (active_.begin == 0) meet(op);
      if (!has_tensor(op.key.kind)) {
        for (int r = 0; r < size() && op.key.elements > 0; ++r)
          std::copy_n(group_->posting(r, op.key.sequence).values.begin(), op.key.elements,
                      op.all_values.begin() + r * op.key.elements);
        active_.stage = Stage::announce;
        return Step::done;
      }
      active_.stage = Stage::work;
      return Step::moved;
    case Stage::work:
      if (!work(op)) return Step::moved;
      group_->arrive();
      active_.stage = Stage::settle;
      return Step::moved;
    case Stage::settle:
      if (!group_->all_here()) return Step::blocked;
      if (active_.staged_here && op.key.kind == Collective::all_reduce) stage_out(op);
      if (active_.end == op.key.elements) {
        active_.stage = Stage::announce;
        return Step::done;
      }
      set_window(op, active_.end);
      if (active_.staged_here) stage_in(op);
      group_->arrive();
      active_.stage = Stage::gather;
      return Step::moved;
  }
  return Step::blocked;
}

bool SharedComm::abort_raised(Abort& abort) {
  if (!group_->aborted()) return false;
  const SharedGroup::Abort first = group_->abort();
  abort = {first.rank, first.reason};
  return true;
}

void SharedComm::leave() {
  ranks_->leave();
}

}  // namespace dstrain
