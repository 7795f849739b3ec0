// Log lines for people, on standard error. Stands on spdlog. A line is its text alone for `info`,
// and begins with "warning: " or "error: " otherwise; ranks other than 0 put "[rank k] " in front.
// Results (plan, check, generate) never pass through here: they go to standard output.
#pragma once

#include <fmt/format.h>

#include <string_view>
#include <utility>

namespace dstrain::log {

enum class Level { info, warning, error };

// Who speaks. Called once at start-up, before threads exist; rank 0 is assumed without it.
void set_rank(int rank);

// Lines below `least` are dropped from now on (`info`, the default, drops none).
void set_least(Level least);

// Writes one line and flushes it. Safe from any thread.
void line(Level level, std::string_view text);

template <class... Args>
void info(fmt::format_string<Args...> format, Args&&... args) {
  line(Level::info, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void warn(fmt::format_string<Args...> format, Args&&... args) {
  line(Level::warning, fmt::format(format, std::forward<Args>(args)...));
}

template <class... Args>
void error(fmt::format_string<Args...> format, Args&&... args) {
  line(Level::error, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace dstrain::log
