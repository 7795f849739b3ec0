#include "runtime/core/log/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <ctime>
#include <memory>
#include <string>

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

  spdlog::logger& of(Level level) { return level == Level::info ? output_ : error_; }

 private:
  void set_pattern() {
    for (spdlog::logger* logger : {&output_, &error_}) logger->set_pattern(time_ + mark_ + "%v");
  }

  spdlog::logger output_, error_;
  std::string mark_, time_;
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
  return lines().of(level).should_log(spd_level(level));
}

void line(Level level, std::string_view text) {
  const std::string_view prefix = level == Level::error     ? "error: "
                                  : level == Level::warning ? "warning: "
                                                            : "";
  lines().of(level).log(spd_level(level), fmt::format("{}{}", prefix, text));
}

}  // namespace dstrain::log
