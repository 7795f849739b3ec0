#include "launcher/supervise/board_view.h"

#include <signal.h>

#include <algorithm>
#include <utility>

#include "launcher/placement/machine.h"
#include "launcher/supervise/find_ranks.h"

namespace dstrain {
namespace {

// Between checks of whether processes are stopped, each of which reads a file.
constexpr int64_t kStateInterval = 250'000'000;
// Between searches for ranks that have not joined, which read a file of every process.
constexpr int64_t kSearchInterval = 1'000'000'000;

}  // namespace

BoardView::BoardView(const RankBoard& board, std::span<const int> ranks, std::string mark,
                     std::string name)
    : board_(board),
      mark_(std::move(mark)),
      name_(std::move(name)),
      reports_(ranks.size()),
      processes_(ranks.size()),
      progress_(ranks.size(), -1),
      last_search_ns_(monotonic_ns()) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    reports_[i].rank = ranks[i];
    reports_[i].moved_ns = last_search_ns_;
  }
}

void BoardView::update(bool closely) {
  const int64_t now = monotonic_ns();
  check_states_ = closely || now - last_state_check_ns_ >= kStateInterval;
  if (check_states_) last_state_check_ns_ = now;
  find_absent_ranks(now);
  for (size_t i = 0; i < reports_.size(); ++i) {
    update_rank(i, now);
    if (!closely) continue;
    RankReport& report = reports_[i];
    const RankSlot& slot = board_.slot(report.rank);
    report.instruction = slot.current_instruction();
    report.waits_in = report.waits_for < 0 ? "" : slot.awaited_instruction();
  }
  last_update_ns_ = now;
}

void BoardView::set_process(size_t i, int64_t pid, int64_t now) {
  reports_[i].pid = static_cast<int>(pid);
  reports_[i].moved_ns = now;
  processes_[i] = PeerProcess(pid);
  find_kill_counter(static_cast<pid_t>(pid));
}

// A rank may be moved to another cgroup at any time.
void BoardView::find_kill_counter(pid_t pid) {
  const std::filesystem::path counter = kill_counter(pid);
  if (!counter.empty() && !kills_before_.contains(counter))
    kills_before_.emplace(counter, kills_in(counter));
}

// Searches for ranks that have not joined, so that they are watched too.
void BoardView::find_absent_ranks(int64_t now) {
  if (mark_.empty() || now - last_search_ns_ < kSearchInterval) return;
  last_search_ns_ = now;
  if (std::ranges::all_of(reports_, [](const RankReport& r) { return r.joined(); })) return;
  for (const auto& [rank, pid] : find_ranks(mark_))
    for (size_t i = 0; i < reports_.size(); ++i)
      if (reports_[i].rank == rank && !reports_[i].joined()) set_process(i, pid, now);
}

void BoardView::update_rank(size_t i, int64_t now) {
  RankReport& report = reports_[i];
  PeerProcess& process = processes_[i];
  const RankSlot& slot = board_.slot(report.rank);
  if (!report.joined() && slot.pid.load() != 0) set_process(i, slot.pid.load(), now);
  if (report.gone && !report.wait_status) report.wait_status = process.wait_status();
  if (!report.alive()) return;
  report.gone = !process.alive();
  if (report.gone) report.wait_status = process.wait_status();
  // It may have ended right after the last update.
  report.alive_ns = report.gone ? last_update_ns_ : now;
  // If it has ended, these values are final, because they are read after its end.
  report.state = slot.state.load();
  report.step = slot.step.load();
  report.waits_for = slot.waits_for.load();
  const int64_t progress = slot.progress.load();
  if (check_states_ && !report.gone) find_kill_counter(report.pid);
  const bool suspended = check_states_ ? process.stopped() : report.suspended_since != 0;
  if (!suspended)
    report.suspended_since = 0;
  else if (report.suspended_since == 0)
    report.suspended_since = now;
  if (std::exchange(progress_[i], progress) != progress) report.moved_ns = now;
  if (report.failed() || slot.failure_order.load() == 0) return;
  report.failure_kind = slot.failure_kind.load();
  report.failure_ns = slot.failure_ns.load();
  report.failure = slot.failure_text();
}

void BoardView::kill_all() {
  for (size_t i = 0; i < reports_.size(); ++i)
    if (reports_[i].alive() && processes_[i].alive()) ::kill(reports_[i].pid, SIGKILL);
}

int64_t BoardView::out_of_memory_kills() const {
  int64_t kills = 0;
  for (const auto& [counter, before] : kills_before_)
    kills += std::max<int64_t>(0, kills_in(counter) - before);
  return kills;
}

}  // namespace dstrain
