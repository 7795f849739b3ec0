#include "runtime/comm/shared_group.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <new>
#include <random>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kControlBytes = (sizeof(ControlBlock) + 4095) / 4096 * 4096;

struct Invitation {
  int64_t pid = 0;
  int32_t fd = -1;
  uint64_t token = 0;  // proves that the memory found at (pid, fd) is the one meant
};

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  const timespec timeout{0, 100'000'000};
  ::syscall(SYS_futex, &word, FUTEX_WAIT, expected, &timeout, nullptr, 0);
}

void futex_wake(std::atomic<uint32_t>& word) {
  ::syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

static_assert(std::atomic<uint32_t>::is_always_lock_free &&
              std::atomic<uint64_t>::is_always_lock_free);

}  // namespace

std::unique_ptr<SharedGroup> SharedGroup::open(MpiSession& mpi, std::string& why) {
  std::unique_ptr<SharedGroup> group(new SharedGroup);
  const auto size = static_cast<size_t>(mpi.size());
  group->rank_ = mpi.rank();
  group->mapped_.resize(size);
  Invitation mine;
  mine.pid = ::getpid();
  try {
    group->own_ = Memory::shared(kControlBytes + kBounceBytes, "the communicator");
    std::random_device random;
    mine.token = (uint64_t{random()} << 32 | random()) | 1;
    mine.fd = group->own_.fd();
    new (group->own_.data()) ControlBlock;
    reinterpret_cast<ControlBlock*>(group->own_.data())->token.store(mine.token);
  } catch (const RunError& error) {
    why = error.what();
  }
  const std::vector<Invitation> all = mpi.gather(mine);
  for (size_t r = 0; r < size && why.empty(); ++r) {
    std::byte* base = group->own_.data();
    if (r != static_cast<size_t>(mpi.rank())) {
      try {
        group->mapped_[r] = Memory::open_peer(all[r].pid, all[r].fd, kControlBytes + kBounceBytes);
        base = group->mapped_[r].data();
      } catch (const RunError& error) {
        why = error.what();
        break;
      }
    }
    auto* block = reinterpret_cast<ControlBlock*>(base);
    if (block->token.load() != all[r].token)
      why =
          fmt::format("process {} is not rank {} here (another process namespace)", all[r].pid, r);
    group->blocks_.push_back(block);
    group->bounces_.push_back(base + kControlBytes);
    group->processes_.emplace_back(all[r].pid);
  }
  if (!mpi.all_agree(why.empty())) return nullptr;
  return group;
}

void SharedGroup::arrive() {
  // Sequentially consistent, as in sleep(): either the sleeper sees the count or we see it sleeping.
  block(rank_).arrived.store(++arrivals_, std::memory_order_seq_cst);
  for (int r = 0; r < size(); ++r)
    if (r != rank_ && block(r).sleeping.load(std::memory_order_seq_cst) != 0) ring(r);
}

void SharedGroup::ring(int r) {
  block(r).doorbell.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(block(r).doorbell);
}

int SharedGroup::lagging_rank() {
  for (int r = 0; r < size(); ++r)
    if (block(r).arrived.load(std::memory_order_acquire) < arrivals_) return r;
  return -1;
}

void SharedGroup::sleep() {
  ControlBlock& own = block(rank_);
  const uint32_t bell = own.doorbell.load(std::memory_order_seq_cst);
  own.sleeping.store(1, std::memory_order_seq_cst);
  bool here = true;
  for (int r = 0; r < size() && here; ++r)
    here = block(r).arrived.load(std::memory_order_seq_cst) >= arrivals_;
  if (!here && aborting_rank() < 0) futex_wait(own.doorbell, bell);
  own.sleeping.store(0, std::memory_order_relaxed);
}

void SharedGroup::raise_abort(const std::string& reason) {
  ControlBlock& own = block(rank_);
  const size_t length = std::min(reason.size(), own.abort_reason.size() - 1);
  std::copy_n(reason.begin(), length, own.abort_reason.begin());
  int32_t nobody = 0;
  block(0).first_abort.compare_exchange_strong(nobody, rank_ + 1, std::memory_order_seq_cst);
  for (int r = 0; r < size(); ++r) ring(r);
}

int SharedGroup::aborting_rank() {
  return block(0).first_abort.load(std::memory_order_seq_cst) - 1;
}

std::string SharedGroup::abort_reason(int r) {
  return block(r).abort_reason.data();
}

}  // namespace dstrain
