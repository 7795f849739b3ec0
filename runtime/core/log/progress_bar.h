// ProgressBar: one line on standard error that is redrawn while a run goes on. On a terminal the process draws
// it itself. A rank whose output passes through a launching process sends the text of the bar, ended by '\r'
// instead of '\n', and the launching process draws it below the lines of all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace dstrain {

// The environment variable by which a launching process asks rank 0 for the bar; its value is the number of
// columns.
inline constexpr const char* kProgressVariable = "DSTRAIN_PROGRESS";

// Returns the columns of the terminal `descriptor`; 80 if they are not known.
int terminal_columns(int descriptor);

// Returns whether `descriptor` is a terminal that can erase a line: TERM is not "dumb".
bool can_draw_bar(int descriptor);

class ProgressBar {
 public:
  // Returns a bar if it is shown: log lines of level info are written, and standard error is a terminal or a
  // launching process asks for the bar. Returns nothing otherwise.
  static std::optional<ProgressBar> where_shown();

  // Returns whether the bar may be redrawn now: at most ten times a second.
  bool due() const;
  // Draws the bar filled to `part` (0 to 1), and `text` behind it. Errors are ignored, because a closed terminal
  // must not end a run.
  void draw(double part, std::string_view text);
  // Erases the bar until it is drawn again.
  void clear();

 private:
  ProgressBar(bool terminal, int columns) : terminal_(terminal), columns_(columns) {}

  bool terminal_;
  int columns_;  // of the launching process's terminal
  bool drawn_ = false;
  int64_t last_drawn_ns_ = 0;
};

}  // namespace dstrain
