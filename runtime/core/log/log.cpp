#include "runtime/core/log/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <ctime>
#include <memory>
#include <mutex>
#include <string>

#include "runtime/core/log/terminal.h"

namespace dstrain::log {
namespace {

spdlog::level::level_enum spd_level(Level level) {
  switch (level) {
    case Level::info:
      return spdlog::level::info;
    case Level::warning:
      return spdlog::level::warn;
    case Level::error:
      break;
  }
  return spdlog::level::err;
}

constexpr std::string_view kErase = "\r\x1b[K";
constexpr const char* kTimePattern = "%Y-%m-%d %H:%M:%S ";

// The format and the outputs of this process's lines.
class Lines {
 public:
  Lines()
      : output_("dstrain", std::make_shared<spdlog::sinks::stdout_sink_mt>()),
        error_("dstrain", std::make_shared<spdlog::sinks::stderr_sink_mt>()) {
    for (spdlog::logger* logger : {&output_, &error_}) logger->flush_on(spdlog::level::trace);
    set_pattern();
  }

  void set_mark(std::string_view mark) {
    mark_.clear();
    for (const char c : mark) mark_.append(c == '%' ? 2 : 1, c);
    set_pattern();
  }

  void set_time_stamps(bool wanted) {
    time_ = wanted ? kTimePattern : "";
    set_pattern();
  }

  void set_least(Level least) {
    for (spdlog::logger* logger : {&output_, &error_}) logger->set_level(spd_level(least));
  }

  bool shows(Level level) { return of(level).should_log(spd_level(level)); }

  void write(Level level, const std::string& text) {
    if (!shows(level)) return;
    const std::lock_guard lock(mutex_);
    if (!below_.empty()) write_error(kErase);
    of(level).log(spd_level(level), text);
    if (!below_.empty()) draw_below();
  }

  void show_below(std::string_view text) {
    const std::lock_guard lock(mutex_);
    if (text.empty() && !below_.empty()) write_error(kErase);
    below_ = text;
    if (!below_.empty()) draw_below();
  }

  void send_below(std::string_view text) {
    const std::lock_guard lock(mutex_);
    write_error(std::string(text) + '\r');
  }

 private:
  spdlog::logger& of(Level level) { return level == Level::info ? output_ : error_; }

  static void write_error(std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  }

  // The last column stays free: what goes on in a second line is not erased.
  void draw_below() const {
    const int columns = std::max(terminal_columns(STDERR_FILENO) - 1, 0);
    write_error(fmt::format("{}{}", kErase,
                            std::string_view(below_).substr(0, static_cast<size_t>(columns))));
  }

  void set_pattern() {
    for (spdlog::logger* logger : {&output_, &error_}) logger->set_pattern(time_ + mark_ + "%v");
  }

  spdlog::logger output_, error_;
  std::string mark_, time_;
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
  const size_t size = std::strftime(text.data(), text.size(), kTimePattern, &local);
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
