// Log lines for people, on standard error. Stands on spdlog. A line is its text alone for `info`,
// and begins with "warning: " or "error: " otherwise; ranks other than 0 put their mark in front.
// Results (plan, check, generate) never pass through here: they go to standard output.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

namespace dstrain::log {

enum class Level { info, warning, error };

// What a rank's lines begin with: "[rank 3 node2] ", or "[rank 3] " where all are on one machine (an
// empty `host`); nothing for rank 0.
std::string rank_mark(int rank, std::string_view host = "");

// Who speaks. Called once at start-up, before threads exist; rank 0 is assumed without it.
void set_rank(int rank, std::string_view host = "");

// Lines below `least` are dropped from now on (`info`, the default, drops none).
void set_least(Level least);
// Whether lines of this level are written.
bool shows(Level level);

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
