#include "launcher/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <string_view>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kSameSignalNs = 1'000'000'000;

// All that a signal handler can find.
struct HandlerState {
  std::atomic<const RankBoard*> board{nullptr};
  std::atomic<bool> note{false};
  std::atomic<StopSignals::Second> on_second{StopSignals::Second::ends_process};
  std::atomic<int> second{0};
  std::atomic<int64_t> first_ns{0};
};

HandlerState& handler_state() {
  static HandlerState state;
  return state;
}

extern "C" void on_stop_signal(int number) {
  HandlerState& state = handler_state();
  const RankBoard* board = state.board.load();
  if (board == nullptr) ::_exit(128 + number);
  // The first of this process: ranks may share a board, and each gets the signal.
  int64_t first_ns = 0;
  const int64_t now = monotonic_ns();
  if (!state.first_ns.compare_exchange_strong(first_ns, now)) {
    const StopSignals::Second on_second = state.on_second.load();
    if (on_second == StopSignals::Second::is_remembered) {
      state.second.store(number);
    } else if (on_second == StopSignals::Second::ends_process || now - first_ns > kSameSignalNs) {
      ::_exit(128 + number);
    }
    return;
  }
  board->request_stop(number);
  if (!state.note.load()) return;
  constexpr std::string_view kNote =
      "stopping after this step, then writing the weights; again to stop at once\n";
  // Nothing can be done where it cannot be written.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kNote.data(), kNote.size());
}

}  // namespace

StopSignals::StopSignals(const RankBoard& board, Note note, Second second) {
  HandlerState& state = handler_state();
  check(state.board.exchange(&board) == nullptr, "two holders of the stop signals");
  state.note.store(note == Note::on_standard_error);
  state.on_second.store(second);
  state.second.store(0);
  state.first_ns.store(0);
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &action, &before_[i]);
}

StopSignals::~StopSignals() {
  for (size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
  handler_state().board.store(nullptr);
}

int StopSignals::second() const {
  return handler_state().second.load();
}

}  // namespace dstrain
