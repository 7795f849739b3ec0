#include "launcher/output/rank_output.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "launcher/process/read_pipe.h"
#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"
#include "runtime/core/log/live_line.h"
#include "runtime/core/log/log.h"
#include "runtime/core/log/terminal.h"
#include "runtime/core/rank_board.h"

namespace dstrain {
namespace {

constexpr std::array kStreams{StandardStream::output, StandardStream::error};

OutputLines::Options line_options(const RankOutputOptions& options) {
  OutputLines::Options lines;
  lines.ranks = options.ranks;
  lines.hosts = options.hosts;
  lines.live_line = can_erase_lines(options.error);
  lines.columns = [error = options.error] { return terminal_columns(error); };
  if (options.time_stamps) lines.time_stamp = log::time_stamp;
  return lines;
}

// Returns part `n`, from 0, of an address, whose parts are separated by colons; empty if there is none.
std::string_view part_of(std::string_view address, int n) {
  for (int i = 0; i < n; ++i) {
    const size_t colon = address.find(':');
    if (colon == std::string_view::npos) return "";
    address.remove_prefix(colon + 1);
  }
  return address.substr(0, address.find(':'));
}

void open_as(const std::string& path, int descriptor) {
  const Descriptor file(::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC));
  if (file.get() < 0 || ::dup2(file.get(), descriptor) < 0)
    fail_run("cannot write to the launching process at {}: {}", path, system_reason(errno));
}

}  // namespace

std::string RankPipes::text() const {
  return fmt::format("{},{}", output.write.get(), error.write.get());
}

std::string output_address(const std::vector<std::string>& pipes) {
  std::string address = std::to_string(::getpid());
  for (const std::string& text : pipes) address += ":" + text;
  return address;
}

void open_rank_output(const std::string& address, int rank) {
  const std::string_view process = part_of(address, 0), pipes = part_of(address, rank + 1);
  const size_t comma = pipes.find(',');
  if (comma == std::string_view::npos)
    fail_run("the launching process has no output pipes for rank {} ({})", rank, address);
  open_as(fmt::format("/proc/{}/fd/{}", process, pipes.substr(0, comma)), STDOUT_FILENO);
  open_as(fmt::format("/proc/{}/fd/{}", process, pipes.substr(comma + 1)), STDERR_FILENO);
}

Environment progress_environment(int error) {
  if (!can_erase_lines(error)) return {};
  return {{kLiveLineVariable, "1"}};
}

RankOutput::RankOutput(RankOutputOptions options)
    : options_(std::move(options)),
      pipes_(options_.hosts.empty() ? static_cast<size_t>(options_.ranks) : 0),
      ready_(::epoll_create1(EPOLL_CLOEXEC)),
      writer_(options_.output, options_.error),
      lines_(line_options(options_),
             [this](StandardStream stream, TextKind kind, std::string text) {
               writer_.write(stream, kind, std::move(text));
             }) {
  if (ready_.get() < 0) fail_run("cannot watch the ranks' output: {}", system_reason(errno));
  std::vector<std::string> texts;
  for (size_t rank = 0; rank < pipes_.size(); ++rank) {
    texts.push_back(pipes_[rank].text());
    for (const StandardStream stream : kStreams) {
      epoll_event event{};
      event.events = EPOLLIN;
      event.data.u64 = 2 * rank + static_cast<uint64_t>(stream);
      if (::epoll_ctl(ready_.get(), EPOLL_CTL_ADD, pipes_[rank].of(stream).read.get(), &event) != 0)
        fail_run("cannot watch the output of rank {}: {}", rank, system_reason(errno));
    }
  }
  address_ = output_address(texts);
}

void RankOutput::forward() {
  std::array<epoll_event, 64> events;
  const int count = ::epoll_wait(ready_.get(), events.data(), static_cast<int>(events.size()), 0);
  for (int i = 0; i < count; ++i) {
    const uint64_t source = events[static_cast<size_t>(i)].data.u64;
    read_from(static_cast<int>(source / 2), static_cast<StandardStream>(source % 2));
  }
  lines_.flush_due(monotonic_ns());
}

void RankOutput::read_from(int rank, StandardStream stream) {
  read_available(pipes_[static_cast<size_t>(rank)].of(stream).read.get(),
                 [&](std::string_view bytes) { add(rank, stream, bytes); });
}

void RankOutput::add(int rank, StandardStream stream, std::string_view bytes) {
  lines_.add(rank, stream, bytes, monotonic_ns());
}

void RankOutput::finish() {
  epoll_event event;
  while (::epoll_wait(ready_.get(), &event, 1, 0) == 1)
    read_from(static_cast<int>(event.data.u64 / 2),
              static_cast<StandardStream>(event.data.u64 % 2));
  lines_.finish();
}

}  // namespace dstrain
