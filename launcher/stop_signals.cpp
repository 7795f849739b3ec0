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
};

HandlerState& handler_state() {
  static HandlerState state;
  return state;
}

extern "C" void on_stop_signal(int number) {
  const RankBoard* board = handler_state().board.load();
  if (board == nullptr || board->stop_request() != 0) ::_exit(128 + number);
  board->request_stop(number);
  if (!handler_state().note.load()) return;
  constexpr std::string_view kNote =
      "stopping after this step, then writing the weights; again to stop at once\n";
  // Nothing can be done where it cannot be written.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kNote.data(), kNote.size());
}

}  // namespace

StopSignals::StopSignals(const RankBoard& board, Note note) {
  check(handler_state().board.exchange(&board) == nullptr, "two holders of the stop signals");
  handler_state().note.store(note == Note::on_standard_error);
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

}  // namespace dstrain
