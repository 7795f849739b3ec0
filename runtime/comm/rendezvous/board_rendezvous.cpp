#include "runtime/comm/rendezvous/board_rendezvous.h"

#include <climits>
#include <cstring>
#include <string>

#include "runtime/comm/rendezvous/peer_process.h"
#include "runtime/core/error.h"
#include "runtime/core/futex.h"

namespace dstrain {
namespace {

// At those who are missing.
constexpr std::chrono::milliseconds kBetweenLooks{50};

std::string name_of(int rank, int pid) {
  return pid == 0 ? fmt::format("rank {}, which has not begun", rank)
                  : fmt::format("rank {} (pid {})", rank, pid);
}

}  // namespace

BoardRendezvous::BoardRendezvous(const RankBoard& board, int rank, double deadline_seconds)
    : board_(board),
      rank_(rank),
      deadline_seconds_(deadline_seconds),
      rounds_(board.slot(rank).cards_laid.load()) {}

void BoardRendezvous::gather_bytes(const void* mine, void* all, size_t bytes) {
  check(bytes <= kCardBytes, "a record of {} bytes on a card of {}", bytes, kCardBytes);
  // Cards are used in turn: a rank lays the next one while a peer may still read the last.
  const uint32_t round = ++rounds_;
  RankSlot& own = board_.slot(rank_);
  std::memcpy(own.cards[round % 2].data(), mine, bytes);
  own.cards_laid.store(round, std::memory_order_release);
  std::atomic<uint32_t>& cards = board_.cards_of_all();
  if (cards.fetch_add(1) + 1 == round * static_cast<uint32_t>(size()))
    futex_wake(cards, INT_MAX);
  else
    wait_for(round);
  for (int r = 0; r < size(); ++r)
    std::memcpy(static_cast<std::byte*>(all) + static_cast<size_t>(r) * bytes,
                board_.slot(r).cards[round % 2].data(), bytes);
}

void BoardRendezvous::wait_for(uint32_t round) {
  std::atomic<uint32_t>& cards = board_.cards_of_all();
  const uint32_t wanted = round * static_cast<uint32_t>(size());
  const auto begin = Clock::now();
  auto last_look = begin;
  for (uint32_t now = cards.load(); static_cast<int32_t>(now - wanted) < 0; now = cards.load()) {
    futex_wait(cards, now, kBetweenLooks);
    if (Clock::now() - last_look < kBetweenLooks) continue;
    last_look = Clock::now();
    look_after(round, begin);
  }
  board_.slot(rank_).waits_for.store(-1, std::memory_order_relaxed);
}

// The first rank that has not laid its card of this round, or -1.
int BoardRendezvous::missing(uint32_t round) const {
  for (int r = 0; r < size(); ++r)
    if (static_cast<int32_t>(board_.slot(r).cards_laid.load() - round) < 0) return r;
  return -1;
}

void BoardRendezvous::look_after(uint32_t round, Clock::time_point waiting_since) {
  if (const auto failed = board_.first_failure())
    throw PeerError(
        fmt::format("rank {} stopped the run: {}", *failed, board_.slot(*failed).failure_text()));
  for (int r = 0; r < size(); ++r) {
    const RankSlot& slot = board_.slot(r);
    const int pid = slot.pid.load();
    if (pid == 0 || PeerProcess(pid).alive()) continue;
    // It may have ended after it had laid its card.
    if (static_cast<int32_t>(slot.cards_laid.load() - round) < 0)
      throw PeerError(fmt::format("{} died before it had joined the others", name_of(r, pid)));
  }
  const int absent = missing(round);
  if (absent < 0) return;
  board_.slot(rank_).waits_for.store(absent, std::memory_order_relaxed);
  const double seconds = std::chrono::duration<double>(Clock::now() - waiting_since).count();
  if (seconds < deadline_seconds_) return;
  throw PeerError(fmt::format("rank {} waited {:.3g} s for {} to join: the deadline is {:.3g} s",
                              rank_, seconds, name_of(absent, board_.slot(absent).pid.load()),
                              deadline_seconds_));
}

}  // namespace dstrain
