#include "runtime/core/log/log.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <mutex>
#include <string>

#include "runtime/core/log/terminal.h"

namespace dstrain::log {
namespace {

constexpr std::string_view kErase = "\r\x1b[K";
constexpr const char* kTimeFormat = "%Y-%m-%d %H:%M:%S ";

// The format and the outputs of this process's lines.
class Lines {
 public:
  void set_mark(const std::string& mark) {
    const std::lock_guard lock(mutex_);
    mark_ = mark;
  }

  void set_time_stamps(bool wanted) {
    const std::lock_guard lock(mutex_);
    time_stamps_ = wanted;
  }

  void set_least(Level least) { least_ = least; }

  bool shows(Level level) const { return level >= least_; }

  // One call of fwrite() for the whole line, so that lines of processes with the same output do not mix.
  void write(Level level, std::string_view text) {
    if (!shows(level)) return;
    const std::lock_guard lock(mutex_);
    const std::string line =
        fmt::format("{}{}{}\n", time_stamps_ ? time_stamp() : std::string(), mark_, text);
    if (!below_.empty()) write_to(stderr, kErase);
    write_to(level == Level::info ? stdout : stderr, line);
    if (!below_.empty()) draw_below();
  }

  void show_below(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (text.empty() && !below_.empty()) write_to(stderr, kErase);
    below_ = text;
    if (!below_.empty()) draw_below();
  }

  void send_below(std::string_view text) {
    const std::lock_guard lock(mutex_);
    write_to(stderr, std::string(text) + '\r');
  }

 private:
  // What the stream refuses is lost: a closed output must not end a run.
  static void write_to(std::FILE* stream, std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stream);
    std::fflush(stream);
  }

  // The last column stays free: what goes on in a second line is not erased.
  void draw_below() const {
    const int columns = std::max(terminal_columns(STDERR_FILENO) - 1, 0);
    write_to(stderr, fmt::format("{}{}", kErase,
                                 std::string_view(below_).substr(0, static_cast<size_t>(columns))));
  }

  std::atomic<Level> least_ = Level::info;
  bool time_stamps_ = false;
  std::string mark_;
  std::mutex mutex_;
  std::string below_;  // the text below all lines; empty: none
};

// Created at the first use and never destroyed, so that static objects can log at any time.
Lines& lines() {
  static Lines& instance = *new Lines;
  return instance;
}

}  // namespace

std::string rank_mark(int rank, std::string_view host) {
  if (rank == 0) return "";
  return fmt::format("[rank {}{}{}] ", rank, host.empty() ? "" : " ", host);
}

void set_rank(int rank, std::string_view host) {
  lines().set_mark(rank_mark(rank, host));
}

void set_time_stamps(bool wanted) {
  lines().set_time_stamps(wanted);
}

std::string time_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  ::localtime_r(&now, &local);
  std::array<char, 32> text{};
  const size_t size = std::strftime(text.data(), text.size(), kTimeFormat, &local);
  return {text.data(), size};
}

void set_least(Level least) {
  lines().set_least(least);
}

bool shows(Level level) {
  return lines().shows(level);
}

void line(Level level, std::string_view text) {
  const std::string_view prefix = level == Level::error     ? "error: "
                                  : level == Level::warning ? "warning: "
                                                            : "";
  lines().write(level, fmt::format("{}{}", prefix, text));
}

void show_below(std::string_view text) {
  lines().show_below(text);
}

void send_below(std::string_view text) {
  lines().send_below(text);
}

}  // namespace dstrain::log
