// OutputLines: what the ranks of a run write, made into one text. It cuts each source's bytes into
// lines, says whose a line is, and folds a line that many ranks write at about the same time:
//   [rank 3 node2] warning: ...      [ranks 1-3 node1 node2] warning: ...
// Rank 0's lines pass at once and as they are. Stands on core/log.h alone; does no input, no output and
// keeps no time. Invariant: a rank's lines keep their order, and every byte that came in goes out.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

// "1-3,5" of ascending ranks.
std::string rank_ranges(const std::vector<int>& ranks);

class OutputLines {
 public:
  // A source whose bytes come from several ranks, as mpirun's own output does: marked lines are those
  // of the rank that they name, the others pass as they are.
  static constexpr int kManyRanks = -1;

  struct Options {
    int ranks = 1;
    std::vector<std::string> hosts;   // of each rank; empty: all on one machine
    int64_t window_ns = 200'000'000;  // how long a line waits for others like it
    std::string before_line;          // written before lines of ranks other than 0
  };
  using Write = std::function<void(std::string_view)>;

  OutputLines(Options options, Write write);

  // Takes bytes of a source: a rank, or kManyRanks. Times are nanoseconds of any clock that never goes
  // back.
  void take(int source, std::string_view bytes, int64_t now_ns);
  // Writes what has waited long enough.
  void flush_due(int64_t now_ns);
  // Writes all that is left; an unfinished line gets its line break.
  void finish();

 private:
  struct Source {
    std::string unfinished;
    int64_t since_ns = 0;
  };
  struct Waiting {
    std::string text;  // without mark and line break
    std::string mark;  // of its first rank
    std::vector<int> ranks;
    int64_t since_ns;
  };

  void take_line(int source, std::string_view line, int64_t now_ns);
  void fold(int rank, std::string_view mark, std::string_view text, int64_t now_ns);
  std::string mark_of(int rank) const;
  std::string mark_of(const std::vector<int>& ranks) const;
  void write_front();
  void write_line(std::string_view prefix, std::string_view text);
  void close_line();

  Options options_;
  Write write_;
  std::map<int, Source> sources_;
  std::deque<Waiting> waiting_;
  int open_ = kNone;  // the source whose unfinished line was written last

  static constexpr int kNone = -2;
};

}  // namespace dstrain
