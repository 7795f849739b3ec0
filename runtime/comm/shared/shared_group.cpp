#include "runtime/comm/shared/shared_group.h"

#include <algorithm>
#include <new>
#include <random>

#include "runtime/core/error.h"
#include "runtime/core/futex.h"

namespace dstrain {
namespace {

constexpr int64_t kControlBytes = (sizeof(ControlBlock) + 4095) / 4096 * 4096;

// How the other ranks find a rank's segment.
struct SegmentAddress {
  int32_t fd = -1;     // in its process
  uint64_t token = 0;  // also in its control block: proves that this is the right memory
};

static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace

std::unique_ptr<SharedGroup> SharedGroup::open(Rendezvous& ranks, const Peers& peers,
                                               int64_t bounce_bytes, std::string& why) {
  std::unique_ptr<SharedGroup> group(new SharedGroup);
  const HostMap& hosts = peers.hosts();
  const std::span<const int> members = hosts.ranks_of(hosts.host_of(ranks.rank()));
  group->ranks_.assign(members.begin(), members.end());
  group->index_ = hosts.index_of(ranks.rank());
  group->bounce_bytes_ = bounce_bytes;
  const int64_t bytes = kControlBytes + bounce_bytes;
  SegmentAddress mine;
  try {
    group->own_ = Memory::shared(bytes, "the communicator");
    std::random_device random;
    mine.token = (uint64_t{random()} << 32 | random()) | 1;
    mine.fd = group->own_.fd();
    new (group->own_.data()) ControlBlock;
    reinterpret_cast<ControlBlock*>(group->own_.data())->token.store(mine.token);
  } catch (const RunError& error) {
    why = error.what();
  }
  const std::vector<SegmentAddress> all = ranks.gather(mine);
  for (const int r : members) {
    if (!why.empty()) break;
    const SegmentAddress& address = all[static_cast<size_t>(r)];
    std::byte* base = group->own_.data();
    if (r != ranks.rank()) {
      try {
        group->mapped_.push_back(Memory::open_peer(peers.pid(r), address.fd, bytes));
        base = group->mapped_.back().data();
      } catch (const RunError& error) {
        why = error.what();
        break;
      }
    }
    auto* block = reinterpret_cast<ControlBlock*>(base);
    if (block->token.load() != address.token)
      why = fmt::format("process {} is not rank {} here (another process namespace)", peers.pid(r),
                        r);
    group->blocks_.push_back(block);
    group->bounces_.push_back(base + kControlBytes);
  }
  if (!ranks.all_agree(why.empty())) return nullptr;
  return group;
}

void SharedGroup::count_arrival() {
  awaited_ = ++arrivals_;
  // Sequentially consistent, as in sleep(): either the sleeper sees the count, or this rank sees that it
  // sleeps.
  block(index_).arrived.store(arrivals_, std::memory_order_seq_cst);
}

void SharedGroup::arrive() {
  count_arrival();
  // A sleeper can go on once all others have arrived as often as this rank; the last one to arrive sees
  // that, and wakes it.
  const int first = lagging();
  if (first < 0) {
    for (int i = 0; i < size(); ++i)
      if (i != index_) ring_sleeper(i);
  } else if (lagging(first + 1) < 0) {
    ring_sleeper(first);
  }
}

void SharedGroup::arrive_at(int i) {
  count_arrival();
  ring_sleeper(i);
}

void SharedGroup::ring_sleeper(int i) {
  if (block(i).sleeping.load(std::memory_order_seq_cst) != 0) ring(i);
}

void SharedGroup::ring(int i) {
  block(i).doorbell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(block(i).doorbell, 1);
}

int SharedGroup::lagging(int from) {
  for (int i = from; i < size(); ++i)
    if (!is_here(i)) return i;
  return -1;
}

void SharedGroup::sleep(std::chrono::microseconds most) {
  ControlBlock& own = block(index_);
  const uint32_t bell = own.doorbell.load(std::memory_order_seq_cst);
  own.sleeping.store(1, std::memory_order_seq_cst);
  bool here = true;
  for (int i = 0; i < size() && here; ++i) here = is_here(i);
  if (!here && !aborted()) futex_wait(own.doorbell, bell, most);
  own.sleeping.store(0, std::memory_order_relaxed);
}

void SharedGroup::raise_abort(int rank, const std::string& reason) {
  ControlBlock& own = block(index_);
  own.abort_rank = rank;
  const size_t length = std::min(reason.size(), own.abort_reason.size() - 1);
  std::copy_n(reason.begin(), length, own.abort_reason.begin());
  int32_t none = 0;
  block(0).first_abort.compare_exchange_strong(none, index_ + 1, std::memory_order_seq_cst);
  for (int i = 0; i < size(); ++i) ring(i);
}

std::optional<Abort> SharedGroup::raised_abort() {
  const int32_t first = block(0).first_abort.load(std::memory_order_seq_cst);
  if (first == 0) return std::nullopt;
  const ControlBlock& origin = block(first - 1);
  return Abort{origin.abort_rank, origin.abort_reason.data()};
}

}  // namespace dstrain
