// RankOutput: forwards what ranks write to the launching process's standard output and standard error. Each rank on
// this machine has a pipe for each of the two. Invariants: neither ranks nor the supervisor wait for the reader of the
// output; after finish() everything that ranks wrote is queued for writing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/output/output_lines.h"
#include "launcher/output/output_writer.h"
#include "launcher/process/descriptor.h"
#include "launcher/process/environment.h"

namespace dstrain {

// The two pipes of a rank.
struct RankPipes {
  Pipe output, error;

  // The pipe of one stream.
  const Pipe& of(StandardStream stream) const {
    return stream == StandardStream::output ? output : error;
  }
  // Returns the descriptors of the write ends for output_address(): "12,14".
  std::string text() const;
};

// Returns the address by which open_rank_output() finds the pipes: this process's id, and for each rank of the run its
// RankPipes::text(), which is empty if the rank runs on another host.
std::string output_address(const std::vector<std::string>& pipes);

// Directs standard output and error of this process to the pipes of `rank` at `address`. Throws RunError if they cannot
// be opened.
void open_rank_output(const std::string& address, int rank);

// Returns the variables with which rank 0 draws a live line for a launching process whose standard error is the
// descriptor `error`; none if that is not a terminal.
Environment progress_environment(int error);

// The settings of a RankOutput: the ranks, where they run, and where their output goes.
struct RankOutputOptions {
  int ranks = 1;
  // The host of each rank, if their output comes through add() and not through pipes. Empty: all run on this machine.
  std::vector<std::string> hosts{};
  int output = 1, error = 2;  // the descriptors to write to
  bool time_stamps = false;   // before each line
};

class RankOutput {
 public:
  // Throws RunError if the system refuses a pipe.
  explicit RankOutput(RankOutputOptions options);
  RankOutput(const RankOutput&) = delete;
  RankOutput& operator=(const RankOutput&) = delete;

  // The address of the pipes for open_rank_output(). This process must outlive the ranks.
  const std::string& address() const { return address_; }
  // A descriptor that is readable while there is something to forward.
  int ready() const { return ready_.get(); }

  // Forwards what has arrived in the pipes.
  void forward();
  // Forwards bytes that a rank wrote and that came without a pipe.
  void add(int rank, StandardStream stream, std::string_view bytes);
  // Forwards all that is left.
  void finish();
  // Waits for at most `milliseconds` until everything is written. Returns whether it is.
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
