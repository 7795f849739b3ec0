// Log lines for people. Stands on spdlog. A line of level `info` is its text alone, on standard output; a warning or an
// error begins with "warning: " or "error: " and goes to standard error. Ranks other than 0 put their mark in front.
// Results of commands (plan, check, generate) never pass through here; those commands log nothing of level `info`.
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

// Whether lines begin with the local date and time (no, by default).
void set_time_stamps(bool wanted);
// Returns the local time as lines show it: "2026-01-31 23:59:59 ".
std::string time_stamp();

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
