// RankOutput: the way of what a host's ranks write to the launching process's output. Each rank has a
// pipe of its own; on a terminal rank 0 has the terminal, so that its progress bar works. Stands on
// child.h and output_lines.h. Invariant: after finish() all that ranks had written is in the output.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/child.h"
#include "launcher/output_lines.h"

namespace dstrain {

class RankOutput {
 public:
  // `output`: the descriptor that gets the lines. `hosts`: of each rank, whose bytes then come by take()
  // alone; empty: one machine. Throws RunError where the system refuses a pipe.
  RankOutput(int ranks, std::vector<std::string> hosts, int output);
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  // For open_rank_output() in the ranks, which this process must outlive.
  const std::string& address() const { return address_; }
  // Readable while there is something to forward.
  int ready() const { return ready_.get(); }

  // Forwards what has come, without blocking on ranks.
  void forward();
  // Takes bytes that came by another way: a rank's, or OutputLines::kManyRanks.
  void take(int source, std::string_view bytes);
  // Forwards all that is left.
  void finish();

 private:
  void read_from(int rank);

  std::vector<Pipe> pipes_;  // by rank
  Descriptor ready_;
  std::string address_;
  OutputLines lines_;
};

// Makes the output of `address` that is `rank`'s this process's standard output and error. Throws
// RunError where it cannot be opened.
void open_rank_output(const std::string& address, int rank);

}  // namespace dstrain
