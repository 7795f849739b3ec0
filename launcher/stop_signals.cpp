#include "launcher/stop_signals.h"

#include <unistd.h>

#include <atomic>
#include <string_view>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// All that a signal handler can find.
struct HandlerState {
  std::atomic<const RankBoard*> board{nullptr};
  std::atomic<bool> note{false};
  std::atomic<bool> remember{false};
  std::atomic<int> second{0};
};

HandlerState& handler_state() {
  static HandlerState state;
  return state;
}

extern "C" void on_stop_signal(int number) {
  HandlerState& state = handler_state();
  const RankBoard* board = state.board.load();
  const bool first = board != nullptr && board->stop_request() == 0;
  if (!first && !state.remember.load()) ::_exit(128 + number);
  if (!first) {
    state.second.store(number);
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
  state.remember.store(second == Second::is_remembered);
  state.second.store(0);
  struct sigaction action {};
  action.sa_handler = on_stop_signal;
  action.sa_flags = SA_RESTART;
  ::sigemptyset(&action.sa_mask);
  ::sigaction(SIGINT, &action, &old_interrupt_);
  ::sigaction(SIGTERM, &action, &old_terminate_);
}

StopSignals::~StopSignals() {
  ::sigaction(SIGINT, &old_interrupt_, nullptr);
  ::sigaction(SIGTERM, &old_terminate_, nullptr);
  handler_state().board.store(nullptr);
}

int StopSignals::second() const {
  return handler_state().second.load();
}

}  // namespace dstrain
