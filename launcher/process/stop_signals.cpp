#include "launcher/process/stop_signals.h"

#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <mutex>
#include <thread>
#include <utility>

#include "launcher/process/stop_text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr std::array kStopSignals{SIGINT, SIGTERM, SIGUSR1, SIGHUP};
constexpr int kTraceSignal = SIGUSR2;
constexpr int64_t kSameSignalNs = 1'000'000'000;

bool is_ignored(int number) {
  struct sigaction now {};
  ::sigaction(number, nullptr, &now);
  return now.sa_handler == SIG_IGN;
}

// Does what the kernel would have done if the signal were neither blocked nor ignored.
void apply_default_action(int number) {
  std::signal(number, SIG_DFL);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, number);
  ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  ::raise(number);
}

sigset_t stop_signal_set() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : kStopSignals) sigaddset(&set, number);
  return set;
}

// Receives the signals to this process in a thread of its own.
class SignalReceiver {
 public:
  // Starts the thread if this process has none. A fork does not inherit it.
  void start() {
    const std::lock_guard lock(mutex_);
    if (process_ == ::getpid()) return;
    process_ = ::getpid();
    const sigset_t set = signals_to_runs();
    ::pthread_sigmask(SIG_BLOCK, &set, nullptr);
    std::thread([this, set] { receive(set); }).detach();
  }

  void serve(const RankBoard& board, StopSignals::Note note, StopSignals::Second on_second,
             std::function<bool()> can_finish) {
    const std::lock_guard lock(mutex_);
    check(board_ == nullptr, "two StopSignals objects at a time");
    board_ = &board;
    note_ = note == StopSignals::Note::on_standard_error;
    on_second_ = on_second;
    can_finish_ = std::move(can_finish);
    own_ = 0;
    second_ = 0;
    at_once_ = 0;
    first_ns_ = 0;
    has_begun_ = true;
    if (std::exchange(trace_waits_, false)) board.request_trace();
  }

  void stop_serving() {
    const std::lock_guard lock(mutex_);
    board_ = nullptr;
  }

  int second() {
    const std::lock_guard lock(mutex_);
    return second_;
  }

  int at_once() {
    const std::lock_guard lock(mutex_);
    return at_once_;
  }

  void say_what_ends() {
    const std::lock_guard lock(mutex_);
    says_what_ends_ = true;
  }

  void call_before_end(std::function<void(int)> act) {
    const std::lock_guard lock(mutex_);
    before_end_ = std::move(act);
  }

  void handle_trace() {
    const std::lock_guard lock(mutex_);
    if (board_ == nullptr)
      trace_waits_ = true;
    else
      board_->request_trace();
  }

  // `count`: how many stop signals the process that received this one has received; 0: this process received it.
  void handle(int number, int count) {
    std::unique_lock lock(mutex_);
    if (is_ignored(number) && (board_ == nullptr || number == SIGHUP)) return;
    if (board_ == nullptr) {
      const std::function<void(int)> before_end = before_end_;
      const bool says = says_what_ends_ && !has_begun_;
      lock.unlock();
      if (before_end) before_end(number);
      if (says) write_stop_line(stopped_before_steps(number));
      return apply_default_action(number);
    }
    if (count == 0) count = own_ == 0 || number != SIGHUP ? ++own_ : own_;
    const int64_t now = monotonic_ns();
    const bool first = first_ns_ == 0;
    if (first) {
      first_ns_ = now;
      if (can_finish_ && !can_finish_()) at_once_ = number;
      board_->request_stop(number);
    }
    if (count > 1) handle_second(number, now);
    if (!first || !note_) return;
    const bool at_once = at_once_ != 0;
    lock.unlock();  // the terminal may be stopped, and the write below then blocks
    write_stop_line(
        at_once ? "stopping at once, as not all ranks run yet"
                : "stopping after this step, then writing the weights; again to stop at once");
  }

 private:
  [[noreturn]] void receive(const sigset_t& set) {
    while (true) {
      int number = 0;
      if (::sigwait(&set, &number) != 0) continue;
      if (number == kTraceSignal)
        handle_trace();
      else
        handle(number, 0);
    }
  }

  void handle_second(int number, int64_t now) {
    if (number == SIGHUP) return;
    if (on_second_ == StopSignals::Second::is_remembered)
      second_ = number;
    else if (on_second_ == StopSignals::Second::ends_process || now - first_ns_ > kSameSignalNs) {
      if (note_) write_stop_line(stopped_at_once(number));
      ::_exit(128 + number);
    }
  }

  std::mutex mutex_;
  pid_t process_ = 0;  // that the thread belongs to
  const RankBoard* board_ = nullptr;
  bool note_ = false;
  StopSignals::Second on_second_ = StopSignals::Second::ends_process;
  std::function<void(int)> before_end_;
  std::function<bool()> can_finish_;
  bool says_what_ends_ = false;  // until a StopSignals object has existed
  bool has_begun_ = false;       // there was such an object
  int own_ = 0;  // signals that this process has received; SIGHUP counts as the first only
  int second_ = 0, at_once_ = 0;
  int64_t first_ns_ = 0;
  bool trace_waits_ = false;  // a trace was asked for while there was no board
};

// Never destroyed: its thread lives as long as the process.
SignalReceiver& signal_receiver() {
  static SignalReceiver& receiver = *new SignalReceiver;
  return receiver;
}

}  // namespace

sigset_t signals_to_runs() {
  sigset_t set = stop_signal_set();
  sigaddset(&set, kTraceSignal);
  return set;
}

void receive_stop_signals() {
  signal_receiver().start();
}

void take_stop_signal(int number, int count) {
  if (std::ranges::find(kStopSignals, number) != kStopSignals.end() && count > 0)
    signal_receiver().handle(number, count);
}

void take_trace_signal() {
  signal_receiver().handle_trace();
}

void ignore_stop_signals() {
  for (const int number : kStopSignals) ::signal(number, SIG_IGN);
  ::signal(kTraceSignal, SIG_IGN);
}

void release_stop_signals() {
  const sigset_t set = stop_signal_set();
  ::pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

void say_what_stop_signals_end() {
  signal_receiver().say_what_ends();
}

StopSignals::StopSignals(const RankBoard& board, Note note, Second second,
                         std::function<bool()> can_finish) {
  signal_receiver().start();
  signal_receiver().serve(board, note, second, std::move(can_finish));
}

StopSignals::~StopSignals() {
  signal_receiver().stop_serving();
}

int StopSignals::second() const {
  return signal_receiver().second();
}

int StopSignals::at_once() const {
  return signal_receiver().at_once();
}

BeforeSignalEnds::BeforeSignalEnds(std::function<void(int number)> act) {
  signal_receiver().call_before_end(std::move(act));
}

BeforeSignalEnds::~BeforeSignalEnds() {
  signal_receiver().call_before_end({});
}

}  // namespace dstrain
