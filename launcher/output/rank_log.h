// RankLog: --enable_each_rank_log. Everything that a rank writes goes into a file of its own,
// DIR/<time>_rank<r>.log as DeepSpeed names it, instead of the launching process's output. The time is
// that of the start: the launching process tells it to its ranks by an environment variable. Stands on
// child.h.
#pragma once

#include <memory>
#include <string>

#include "launcher/ranks/child.h"

namespace dstrain {

// DIR/20260131235959 of an absolute path: what the names of the files of a start that begins now begin
// with. Makes DIR. Throws UserError where that is a file or cannot be made.
std::string rank_log_prefix(const std::string& directory);

// What the launching process exports, so that its ranks write to the files of `prefix`.
Environment rank_log_environment(const std::string& prefix);

// Standard output and error of this process are the file as long as the object lives; then they are
// what they were.
class RankLog {
 public:
  // Throws RunError where the file cannot be opened. Makes its directory.
  RankLog(const std::string& prefix, int rank);
  RankLog(const RankLog&) = delete;
  RankLog& operator=(const RankLog&) = delete;
  ~RankLog();

  // That of a rank whose launching process exported one, else null.
  static std::unique_ptr<RankLog> from_environment(int rank);

 private:
  Descriptor output_, error_;  // as they were
};

}  // namespace dstrain
