// ProgressBar: one line on standard error that is drawn again and again while a run goes on. On a terminal the process
// draws it itself. A rank whose output passes through a launching process sends the bar's text, ended by '\r' instead
// of '\n', and the launching process draws it between the lines of all ranks. Stands on core/log.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dstrain {

// The environment variable by which a launching process tells rank 0 that it draws the bar, and in how many columns.
inline constexpr const char* kProgressVariable = "DSTRAIN_PROGRESS";

// Returns the columns of the terminal that `descriptor` is; 80 where they are not known.
int terminal_columns(int descriptor);

class ProgressBar {
 public:
  // Returns a bar where somebody draws it: standard error is a terminal, or a launching process asks for it. Nothing
  // elsewhere, and where log lines are not shown.
  static std::optional<ProgressBar> where_shown();

  // Whether a new state may be drawn now: at most ten are drawn a second.
  bool due() const;
  // Draws `part` (0 to 1) of the bar and `text` behind it. Errors are ignored: a terminal that was closed is no reason
  // to end a run.
  void draw(double part, std::string_view text);
  // Removes the bar from the terminal until it is drawn again.
  void clear();

 private:
  ProgressBar(bool terminal, int columns) : terminal_(terminal), columns_(columns) {}

  bool terminal_;
  int columns_;  // of the launching process's terminal
  bool drawn_ = false;
  int64_t last_drawn_ns_ = 0;
};

}  // namespace dstrain
