// RankLog: --enable_each_rank_log. Everything that a rank writes goes to a file of its own instead of the launching
// process's output. As in DeepSpeed the file is DIR/<time>_rank<r>.log, where <time> is the start of the ranks, which
// the launching process passes to them in an environment variable.
#pragma once

#include <memory>
#include <string>

#include "launcher/process/descriptor.h"
#include "launcher/process/environment.h"

namespace dstrain {

// Returns the beginning of the names of the files for a start at this moment: DIR/20260131235959, absolute. Makes DIR.
// Throws UserError if that is a file or cannot be made.
std::string rank_log_prefix(const std::string& directory);

// Returns the variables with which ranks write to the files of `prefix`.
Environment rank_log_environment(const std::string& prefix);

// The log file of this process's rank. While the object exists, standard output and standard error go to the file.
class RankLog {
 public:
  // Makes the file and its directory. Throws RunError if that fails.
  RankLog(const std::string& prefix, int rank);
  RankLog(const RankLog&) = delete;
  RankLog& operator=(const RankLog&) = delete;
  ~RankLog();

  // Returns the log that the launching process asks for by rank_log_environment(), else null.
  static std::unique_ptr<RankLog> from_environment(int rank);

 private:
  Descriptor output_, error_;  // as they were before
};

}  // namespace dstrain
