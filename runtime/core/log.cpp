#include "runtime/core/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

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

// Made at the first use, so that it exists before and after any other static object that logs.
spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("dstrain",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

}  // namespace

std::string rank_mark(int rank, std::string_view host) {
  if (rank == 0) return "";
  return fmt::format("[rank {}{}{}] ", rank, host.empty() ? "" : " ", host);
}

void set_rank(int rank, std::string_view host) {
  std::string pattern;
  for (const char c : rank_mark(rank, host)) pattern.append(c == '%' ? 2 : 1, c);
  logger().set_pattern(pattern + "%v");
}

void set_least(Level least) {
  logger().set_level(spd_level(least));
}

bool shows(Level level) {
  return logger().should_log(spd_level(level));
}

void line(Level level, std::string_view text) {
  const std::string_view prefix = level == Level::error     ? "error: "
                                  : level == Level::warning ? "warning: "
                                                            : "";
  logger().log(spd_level(level), fmt::format("{}{}", prefix, text));
}

}  // namespace dstrain::log
