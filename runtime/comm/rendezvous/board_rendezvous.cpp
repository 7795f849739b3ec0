#include "runtime/comm/rendezvous/board_rendezvous.h"

#include <climits>
#include <cstring>
#include <string>

#include "runtime/comm/rendezvous/peer_process.h"
#include "runtime/core/error.h"
#include "runtime/core/futex.h"

namespace dstrain {
namespace {

// Between two checks of the ranks that are absent.
constexpr std::chrono::milliseconds kCheckInterval{50};

std::string name_of(int rank, int pid) {
  return pid == 0 ? fmt::format("rank {}, which has not begun", rank)
                  : fmt::format("rank {} (pid {})", rank, pid);
}

}  // namespace

BoardRendezvous::BoardRendezvous(const RankBoard& board, int rank, double deadline_seconds)
    : board_(board),
      rank_(rank),
      deadline_seconds_(deadline_seconds),
      rounds_(board.slot(rank).records_posted.load()) {}

void BoardRendezvous::gather_bytes(const void* mine, void* all, size_t bytes) {
  check(bytes <= kRecordBytes, "a record of {} bytes where {} fit", bytes, kRecordBytes);
  // A slot has two records, used in turn: a rank posts the next one while a peer may still read the last.
  const uint32_t round = ++rounds_;
  RankSlot& own = board_.slot(rank_);
  std::memcpy(own.records[round % 2].data(), mine, bytes);
  own.records_posted.store(round, std::memory_order_release);
  std::atomic<uint32_t>& total = board_.total_records_posted();
  if (total.fetch_add(1) + 1 == round * static_cast<uint32_t>(size()))
    futex_wake(total, INT_MAX);
  else
    wait_for(round);
  for (int r = 0; r < size(); ++r)
    std::memcpy(static_cast<std::byte*>(all) + static_cast<size_t>(r) * bytes,
                board_.slot(r).records[round % 2].data(), bytes);
}

void BoardRendezvous::wait_for(uint32_t round) {
  std::atomic<uint32_t>& total = board_.total_records_posted();
  const uint32_t wanted = round * static_cast<uint32_t>(size());
  const auto begin = Clock::now();
  auto last_check = begin;
  for (uint32_t now = total.load(); static_cast<int32_t>(now - wanted) < 0; now = total.load()) {
    futex_wait(total, now, kCheckInterval);
    if (Clock::now() - last_check < kCheckInterval) continue;
    last_check = Clock::now();
    check_absent_ranks(round, begin);
  }
  board_.slot(rank_).waits_for.store(-1, std::memory_order_relaxed);
}

bool BoardRendezvous::has_posted(int rank, uint32_t round) const {
  return static_cast<int32_t>(board_.slot(rank).records_posted.load() - round) >= 0;
}

// Throws PeerError if a rank that is waited for has failed, has died, or is too late.
void BoardRendezvous::check_absent_ranks(uint32_t round, Clock::time_point waiting_since) {
  if (const auto failed = board_.first_failure())
    throw PeerError(
        fmt::format("rank {} stopped the run: {}", *failed, board_.slot(*failed).failure_text()));
  int first_absent = -1;
  for (int r = 0; r < size(); ++r) {
    const int pid = board_.slot(r).pid.load();
    const bool alive = pid == 0 || PeerProcess(pid).alive();
    // Looked at last: it may have ended after it had posted.
    if (has_posted(r, round)) continue;
    if (!alive)
      throw PeerError(fmt::format("{} died before it had joined the others", name_of(r, pid)));
    if (first_absent < 0) first_absent = r;
  }
  if (first_absent < 0) return;
  board_.slot(rank_).waits_for.store(first_absent, std::memory_order_relaxed);
  const double seconds = std::chrono::duration<double>(Clock::now() - waiting_since).count();
  if (seconds < deadline_seconds_) return;
  throw PeerError(fmt::format(
      "rank {} waited {:.3g} s for {} to join: the deadline is {:.3g} s", rank_, seconds,
      name_of(first_absent, board_.slot(first_absent).pid.load()), deadline_seconds_));
}

}  // namespace dstrain
