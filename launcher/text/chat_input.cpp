#include "launcher/text/chat_input.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr size_t kMostText = size_t{16} << 20;

sigset_t interrupts() {
  sigset_t set;
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

ChatInput::ChatInput() : terminal_(::isatty(STDIN_FILENO) == 1) {
  const sigset_t set = interrupts();
  ::pthread_sigmask(SIG_BLOCK, &set, &before_);
  signals_ = Descriptor(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (signals_.get() < 0) fail_run("cannot receive signals: {}", std::strerror(errno));
  if (!terminal_) return;
  // Programs that share the standard input do not share this file's flags.
  opened_ = Descriptor(::open("/proc/self/fd/0", O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (opened_.get() >= 0) input_ = opened_.get();
}

ChatInput::~ChatInput() {
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

bool ChatInput::interrupted() {
  bool came = false;
  for (signalfd_siginfo info{}; ::read(signals_.get(), &info, sizeof info) == sizeof info;)
    came = true;
  return came;
}

bool ChatInput::take_line(std::string& line, bool at_end) {
  const size_t end = text_.find('\n');
  if (end == std::string::npos && (!at_end || text_.empty())) return false;
  line = text_.substr(0, end);
  text_.erase(0, end == std::string::npos ? end : end + 1);
  if (line.ends_with('\r')) line.pop_back();
  return true;
}

ChatInput::Read ChatInput::read(std::string& line) {
  for (;;) {
    if (interrupted()) {
      if (terminal_) text_.clear();
      return Read::interrupted;
    }
    if (take_line(line, ended_)) return Read::line;
    if (ended_) return Read::end;
    std::array<pollfd, 2> waits{{{input_, POLLIN, 0}, {signals_.get(), POLLIN, 0}}};
    if (::poll(waits.data(), waits.size(), -1) < 0 && errno != EINTR)
      fail_run("cannot wait for the standard input: {}", std::strerror(errno));
    if ((waits[0].revents & (POLLIN | POLLHUP | POLLERR)) == 0) continue;
    std::array<char, 4096> bytes;
    const ssize_t count = ::read(input_, bytes.data(), bytes.size());
    if (count < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (count <= 0) ended_ = true;  // a terminal that was closed is an error
    if (count > 0) text_.append(bytes.data(), static_cast<size_t>(count));
    if (text_.size() > kMostText) fail_user("standard input: a message has more than 16 MiB");
  }
}

}  // namespace dstrain
