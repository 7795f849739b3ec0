// RankOutput: carries what a host's ranks write to the launching process's standard output and standard error. Each rank
// has a pipe for each of the two. Stands on child.h, output_lines.h and output_writer.h. Invariants: ranks and their
// supervisor never wait for whoever reads the output; after finish() all that ranks had written is given to the writer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/output_lines.h"
#include "launcher/output/output_writer.h"
#include "launcher/ranks/child.h"

namespace dstrain {

// The two pipes of a rank.
struct RankPipes {
  Pipe output, error;

  // The pipe of one stream.
  const Pipe& of(StandardStream stream) const {
    return stream == StandardStream::output ? output : error;
  }
  // "12,14": the descriptors that the rank opens, for output_address().
  std::string text() const;
};

// Returns the address under which open_rank_output() finds the pipes: this process, and for each rank of the run the
// text of its pipes, or nothing where it runs elsewhere.
std::string output_address(const std::vector<std::string>& pipes);

// Makes the pipes of `rank` at `address` this process's standard output and standard error. Throws RunError where they
// cannot be opened.
void open_rank_output(const std::string& address, int rank);

// Returns the variables that make rank 0 send its progress bar to a launching process whose standard error is
// `error`: nothing where that is no terminal.
Environment progress_environment(int error);

struct RankOutputOptions {
  int ranks = 1;
  // Where each rank runs; its bytes then come by take() alone. Empty: all run on this machine.
  std::vector<std::string> hosts{};
  int output = 1, error = 2;  // the descriptors that get the lines
  bool time_stamps = false;   // before each line
};

class RankOutput {
 public:
  // Throws RunError where the system refuses a pipe.
  explicit RankOutput(RankOutputOptions options);
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  // For open_rank_output() in the ranks, which this process must outlive.
  const std::string& address() const { return address_; }
  // Readable while there is something to forward.
  int ready() const { return ready_.get(); }

  // Forwards what has come.
  void forward();
  // Takes bytes that came by another way.
  void take(int rank, StandardStream stream, std::string_view bytes);
  // Forwards all that is left.
  void finish();
  // Returns whether all is written, after waiting for that for at most `milliseconds`.
  bool wait_written(int milliseconds) { return writer_.wait(milliseconds); }

 private:
  void read_from(int rank, StandardStream stream);

  RankOutputOptions options_;
  std::vector<RankPipes> pipes_;  // by rank
  Descriptor ready_;
  std::string address_;
  OutputWriter writer_;
  OutputLines lines_;
};

}  // namespace dstrain
