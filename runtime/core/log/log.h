// The log. A line of level `info` goes to standard output as it is; warnings and errors go to standard error
// and begin with "warning: " or "error: ". Lines of ranks other than 0 begin with a mark. The results of
// commands (plan, check, generate) are not log lines; those commands log nothing of level `info`.
#pragma once

#include <fmt/core.h>

#include <string>
#include <string_view>
#include <utility>

namespace dstrain::log {

// The level of a line.
enum class Level { info, warning, error };

// Returns the mark of a rank's lines: "[rank 3 node2] ", or "[rank 3] " with an empty `host` (all ranks on
// one machine); empty for rank 0.
std::string rank_mark(int rank, std::string_view host = "");

// Sets the rank of this process; 0 without it. The caller must call it before other threads exist.
void set_rank(int rank, std::string_view host = "");

// Sets whether lines begin with the local date and time. Default: false.
void set_time_stamps(bool wanted);
// Returns the local time in the form of the lines: "2026-01-31 23:59:59 ".
std::string time_stamp();

// Sets the lowest level that is written. Default: info.
void set_least(Level least);
// Returns whether lines of this level are written.
bool shows(Level level);

// Shows a text below all lines on standard error, a terminal that can erase a line: lines that are written meanwhile
// appear above it. It is cut to the terminal's columns each time it is drawn. An empty text removes it. Errors are
// ignored, because a closed terminal must not end a run. Thread-safe.
void show_below(std::string_view text);
// Writes a text and '\r' to standard error, for a launching process that shows it. Thread-safe.
void send_below(std::string_view text);

// Writes one line and flushes it. Thread-safe.
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
