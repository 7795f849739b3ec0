#include "launcher/output/output_writer.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <thread>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"

namespace dstrain {
namespace {

// Ignores errors: the run goes on if the reader has gone. Whoever shares the output may have made it non-blocking.
void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd output{descriptor, POLLOUT, 0};
      ::poll(&output, 1, -1);
    } else if (errno != EINTR) {
      return;
    }
  }
}

Descriptor duplicate_of(int descriptor) {
  Descriptor duplicate(::fcntl(descriptor, F_DUPFD_CLOEXEC, 3));
  if (duplicate.get() < 0)
    fail_run("cannot duplicate the descriptor of an output: {}", system_reason(errno));
  return duplicate;
}

}  // namespace

OutputWriter::OutputWriter(int output, int error, size_t most_waiting)
    : most_waiting_(most_waiting), state_(std::make_shared<State>()) {
  state_->output = duplicate_of(output);
  state_->error = duplicate_of(error);
  thread_ = std::thread([state = state_] { run(state); });
  // The caller may fork next: what a thread does as it begins or ends may hold locks, which the new process would inherit.
  std::unique_lock lock(state_->mutex);
  state_->changed.wait(lock, [&] { return state_->begun; });
}

OutputWriter::~OutputWriter() {
  std::unique_lock lock(state_->mutex);
  state_->ends = true;
  state_->changed.notify_all();
  const bool may_wait = state_->writing;  // for a reader that does not read
  lock.unlock();
  if (may_wait)
    thread_.detach();
  else
    thread_.join();
}

void OutputWriter::write(StandardStream stream, TextKind kind, std::string text) {
  const std::lock_guard lock(state_->mutex);
  state_->bytes += text.size();
  state_->waiting.push_back({stream, kind, std::move(text)});
  while (state_->bytes > most_waiting_) {
    const auto oldest = std::ranges::find(state_->waiting, TextKind::progress, &Text::kind);
    if (oldest == state_->waiting.end()) break;
    state_->bytes -= oldest->bytes.size();
    ++state_->dropped;
    state_->waiting.erase(oldest);
  }
  state_->changed.notify_all();
}

bool OutputWriter::wait(int milliseconds) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(lock, std::chrono::milliseconds(milliseconds),
                                  [&] { return state_->waiting.empty() && !state_->writing; });
}

void OutputWriter::run(const std::shared_ptr<State>& state) {
  const int output = state->output.get(), error = state->error.get();
  std::unique_lock lock(state->mutex);
  state->begun = true;
  state->changed.notify_all();
  while (true) {
    state->changed.wait(lock, [&] { return state->ends || !state->waiting.empty(); });
    if (state->ends) return;
    const Text text = std::move(state->waiting.front());
    state->waiting.pop_front();
    state->bytes -= text.bytes.size();
    state->writing = true;
    const int64_t dropped = std::exchange(state->dropped, 0);
    lock.unlock();
    if (dropped > 0)
      write_all(error, fmt::format("({} progress lines were dropped, because nothing read the "
                                   "output)\n",
                                   dropped));
    write_all(text.stream == StandardStream::output ? output : error, text.bytes);
    lock.lock();
    state->writing = false;
    state->changed.notify_all();
  }
}

}  // namespace dstrain
