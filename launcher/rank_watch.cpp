#include "launcher/rank_watch.h"

#include <signal.h>

#include <algorithm>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

std::string name_of(const RankBoard& board, int rank) {
  const int pid = board.slot(rank).pid.load();
  return pid == 0 ? fmt::format("rank {}", rank) : fmt::format("rank {} (pid {})", rank, pid);
}

// "at step 5, in linear blocks.0"
std::string place_of(const RankSlot& slot) {
  const int64_t step = slot.step.load();
  if (step == 0) return "before the first step";
  if (slot.state.load() == RankState::saving) return fmt::format("while saving at step {}", step);
  const std::string instruction = slot.current_instruction();
  return instruction.empty() ? fmt::format("at step {}", step)
                             : fmt::format("at step {}, in {}", step, instruction);
}

}  // namespace

RankWatch::RankWatch(const RankBoard& board)
    : board_(board), ranks_(static_cast<size_t>(board.ranks())) {}

void RankWatch::look() {
  for (int r = 0; r < board_.ranks(); ++r) {
    Rank& rank = ranks_[static_cast<size_t>(r)];
    const RankSlot& slot = board_.slot(r);
    if (!rank.joined && slot.pid.load() != 0) {
      rank.joined = true;
      rank.process = PeerProcess(slot.pid.load());
    }
    if (!rank.joined || rank.gone || rank.process.alive()) continue;
    rank.gone = true;
    const RankState state = slot.state.load();  // read after its end: nothing follows
    if (state == RankState::done || state == RankState::failed) continue;
    if (!vanished_ && !culprit_) vanished_ = r;
  }
}

void RankWatch::choose_culprit() {
  if (!culprit_) culprit_ = vanished_ ? vanished_ : board_.first_failure();
}

bool RankWatch::any_alive() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const Rank& r) { return r.joined && !r.gone; });
}

void RankWatch::kill_all() const {
  for (const Rank& rank : ranks_)
    if (rank.joined && !rank.gone && rank.process.alive())
      ::kill(static_cast<pid_t>(rank.process.pid()), SIGKILL);
}

bool RankWatch::all_done() const {
  return first_unfinished().empty();
}

std::string RankWatch::first_unfinished() const {
  for (int r = 0; r < board_.ranks(); ++r)
    if (board_.slot(r).state.load() != RankState::done) return name_of(board_, r);
  return "";
}

int RankWatch::exit_status() const {
  const bool user = culprit_ && !culprit_vanished() &&
                    board_.slot(*culprit_).failure_kind.load() == FailureKind::user;
  return user ? 1 : 2;
}

std::string RankWatch::report(const std::string& ending) const {
  check(culprit_.has_value(), "a report without a culprit");
  const RankSlot& slot = board_.slot(*culprit_);
  const std::string name = name_of(board_, *culprit_);
  if (culprit_vanished()) return fmt::format("{} {} {}", name, ending, place_of(slot));
  const std::string text = slot.failure_text();
  if (slot.failure_kind.load() == FailureKind::user) return text;
  return fmt::format("{} failed {}: {}", name, place_of(slot), text);
}

}  // namespace dstrain
