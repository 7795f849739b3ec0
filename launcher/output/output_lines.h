// OutputLines: merges what the ranks of a run write into one text. It cuts each rank's bytes into lines, marks each
// line with its rank, and joins equal lines that several ranks write at about the same time:
//   [rank 3 node2] warning: ...      [ranks 1-3 node1 node2] warning: ...
// Rank 0's lines are written at once and unmarked; its live line (runtime/core/log/live_line.h) stays below all
// lines. Pure: the caller does input and output and passes the time. Invariant: the lines that a rank writes to one
// stream keep their order, and every byte is written.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/output/output_writer.h"

namespace dstrain {

class OutputLines {
 public:
  // The settings of the merged output of one run.
  struct Options {
    int ranks = 1;
    std::vector<std::string> hosts;   // the host of each rank; empty: all are on one machine
    int64_t window_ns = 200'000'000;  // how long a line waits for equal ones
    bool live_line = false;  // standard error is a terminal, so that rank 0's live line is drawn
    std::function<int()> columns;  // of that terminal now; null: enough for the live line
    std::function<std::string()> time_stamp;  // put before each line; null: nothing
  };
  using Write = std::function<void(StandardStream, TextKind, std::string)>;

  OutputLines(Options options, Write write);

  // Adds bytes that a rank wrote to a stream. Times are in nanoseconds, of any monotonic clock.
  void add(int rank, StandardStream stream, std::string_view bytes, int64_t now_ns);
  // Writes the lines that have waited for the window.
  void flush_due(int64_t now_ns);
  // Writes all that is left, and completes an unfinished line by a line break.
  void finish();

 private:
  using Source = std::pair<int, StandardStream>;
  struct Unfinished {
    std::string text;
    int64_t since_ns = 0;
  };
  struct Waiting {
    StandardStream stream;
    std::string text;  // without mark and line break
    std::string mark;  // of the first rank
    std::vector<int> ranks;
    int64_t since_ns;
  };

  void add_line(Source source, std::string_view line, int64_t now_ns);
  void fold(Source source, std::string_view mark, std::string_view text, int64_t now_ns);
  std::string mark_of(int rank) const;
  std::string mark_of(const std::vector<int>& ranks) const;
  void write_front();
  void write_line(StandardStream stream, std::string_view mark, std::string_view text);
  void close_line();
  void draw_live_line(std::string_view text);
  void clear_live_line();

  Options options_;
  Write write_;
  std::map<Source, Unfinished> sources_;
  std::deque<Waiting> waiting_;
  std::optional<Source> open_;  // the source of the unfinished line that was written last
  std::string live_line_;       // rank 0's live line; empty: none
  bool live_line_is_drawn_ = false;
};

}  // namespace dstrain
