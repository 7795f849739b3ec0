// LiveLine: one line on standard error, below all other lines, that is redrawn while a run goes on. On a terminal the
// process draws it itself (log::show_below). A rank whose output passes through a launching process sends the text,
// ended by '\r' instead of '\n', and the launching process draws it below the lines of all ranks.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace dstrain {

// The environment variable by which a launching process asks rank 0 for the line.
inline constexpr const char* kLiveLineVariable = "DSTRAIN_PROGRESS";

class LiveLine {
 public:
  // Returns a line if it is shown: log lines of level info are written, and standard error is a terminal or a
  // launching process asks for the line. Returns nothing otherwise.
  static std::optional<LiveLine> where_shown();

  // Returns whether the line may be redrawn now: at most ten times a second.
  bool due() const;
  // Draws the text, which has no line break, in place of the one before. What a terminal has no columns for is left
  // out.
  void draw(std::string_view text);
  // Erases the line until it is drawn again.
  void clear();

 private:
  explicit LiveLine(bool terminal) : terminal_(terminal) {}

  bool terminal_;
  bool drawn_ = false;
  int64_t last_drawn_ns_ = 0;
};

}  // namespace dstrain
