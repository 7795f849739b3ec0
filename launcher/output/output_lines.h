// OutputLines: what the ranks of a run write, made into one text. It cuts each rank's bytes into lines, says whose a
// line is, and folds a line that many ranks write at about the same time:
//   [rank 3 node2] warning: ...      [ranks 1-3 node1 node2] warning: ...
// Rank 0's lines pass at once and as they are; its progress bar (runtime/core/log/progress_bar.h) stays below all lines.
// Stands on core/log.h and output_writer.h's streams; does no input, no output and keeps no time. Invariant: the lines
// that a rank writes to one stream keep their order, and every byte that came in goes out.
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

// Returns "1-3,5" for ascending ranks.
std::string rank_ranges(const std::vector<int>& ranks);

class OutputLines {
 public:
  struct Options {
    int ranks = 1;
    std::vector<std::string> hosts;   // of each rank; empty: all on one machine
    int64_t window_ns = 200'000'000;  // how long a line waits for others like it
    bool bar = false;  // standard error is a terminal, on which rank 0's bar is drawn
    std::function<std::string()> time_stamp;  // put before each line; null: nothing is
  };
  using Write = std::function<void(StandardStream, TextKind, std::string)>;

  OutputLines(Options options, Write write);

  // Takes bytes that a rank wrote to a stream. Times are nanoseconds of any clock that never goes back.
  void take(int rank, StandardStream stream, std::string_view bytes, int64_t now_ns);
  // Writes what has waited long enough.
  void flush_due(int64_t now_ns);
  // Writes all that is left; an unfinished line gets its line break.
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
    std::string mark;  // of its first rank
    std::vector<int> ranks;
    int64_t since_ns;
  };

  void take_line(Source source, std::string_view line, int64_t now_ns);
  void fold(Source source, std::string_view mark, std::string_view text, int64_t now_ns);
  std::string mark_of(int rank) const;
  std::string mark_of(const std::vector<int>& ranks) const;
  void write_front();
  void write_line(StandardStream stream, std::string_view mark, std::string_view text);
  void close_line();
  void draw_bar(std::string_view text);
  void clear_bar();

  Options options_;
  Write write_;
  std::map<Source, Unfinished> sources_;
  std::deque<Waiting> waiting_;
  std::optional<Source> open_;  // whose unfinished line was written last
  std::string bar_;             // what rank 0 wants drawn; empty: nothing
  bool bar_is_drawn_ = false;
};

}  // namespace dstrain
