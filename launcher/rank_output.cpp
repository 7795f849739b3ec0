#include "launcher/rank_output.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

constexpr int kMostAtOnce = 16;  // buffers of one rank, before others have their turn

void write_all(int descriptor, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return;  // nobody reads any more; the run goes on
    text.remove_prefix(static_cast<size_t>(n));
  }
}

std::string path_of(const std::string& process, const std::string& descriptor) {
  return fmt::format("/proc/{}/fd/{}", process, descriptor);
}

// Whether ranks can write to `output` themselves, and it is a terminal.
bool is_shared_terminal(int output) {
  if (::isatty(output) != 1) return false;
  const Descriptor again(
      ::open(path_of("self", std::to_string(output)).c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC));
  return again.get() >= 0;
}

OutputLines::Options options_of(int ranks, std::vector<std::string> hosts, bool terminal) {
  OutputLines::Options options;
  options.ranks = ranks;
  options.hosts = std::move(hosts);
  if (terminal) options.before_line = "\r\x1b[K";  // in the place of the progress bar
  return options;
}

}  // namespace

RankOutput::RankOutput(int ranks, std::vector<std::string> hosts, int output)
    : pipes_(hosts.empty() ? static_cast<size_t>(ranks) : 0),
      ready_(::epoll_create1(EPOLL_CLOEXEC)),
      lines_(options_of(ranks, std::move(hosts), is_shared_terminal(output)),
             [output](std::string_view text) { write_all(output, text); }) {
  if (ready_.get() < 0) fail_run("cannot watch the ranks' output: {}", std::strerror(errno));
  const bool terminal = is_shared_terminal(output);
  address_ = std::to_string(::getpid());
  for (int rank = 0; rank < static_cast<int>(pipes_.size()); ++rank) {
    const Pipe& pipe = pipes_[static_cast<size_t>(rank)];
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = rank;
    if (::epoll_ctl(ready_.get(), EPOLL_CTL_ADD, pipe.read.get(), &event) != 0)
      fail_run("cannot watch the output of rank {}: {}", rank, std::strerror(errno));
    address_ += fmt::format(":{}", rank == 0 && terminal ? output : pipe.write.get());
  }
}

void RankOutput::forward() {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(ready_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) read_from(events[static_cast<size_t>(i)].data.fd);
  lines_.flush_due(monotonic_ns());
}

void RankOutput::read_from(int rank) {
  std::array<char, 4096> buffer;
  const int pipe = pipes_[static_cast<size_t>(rank)].read.get();
  for (int i = 0; i < kMostAtOnce; ++i) {
    const ssize_t n = ::read(pipe, buffer.data(), buffer.size());
    if (n <= 0) return;
    take(rank, {buffer.data(), static_cast<size_t>(n)});
  }
}

void RankOutput::take(int source, std::string_view bytes) {
  lines_.take(source, bytes, monotonic_ns());
}

void RankOutput::finish() {
  epoll_event event;
  while (::epoll_wait(ready_.get(), &event, 1, 0) == 1) read_from(event.data.fd);
  lines_.finish();
}

void open_rank_output(const std::string& address, int rank) {
  const size_t colon = address.find(':');
  size_t begin = colon;
  for (int r = 0; r < rank && begin != std::string::npos; ++r) begin = address.find(':', begin + 1);
  if (begin == std::string::npos)
    fail_run("the launching process has no output for rank {} ({})", rank, address);
  const size_t end = std::min(address.find(':', begin + 1), address.size());
  const std::string path =
      path_of(address.substr(0, colon), address.substr(begin + 1, end - begin - 1));
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC));
  if (file.get() < 0 || ::dup2(file.get(), STDOUT_FILENO) < 0 ||
      ::dup2(file.get(), STDERR_FILENO) < 0)
    fail_run("cannot write to the launching process at {}: {}", path, std::strerror(errno));
}

}  // namespace dstrain
