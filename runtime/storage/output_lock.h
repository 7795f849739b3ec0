// OutputLock: an output directory belongs to one run at a time. Stands on flock: the lock is a property of
// the open file `.dstrain.lock`, which forks share, and so ends with the process that took it and the ranks
// that it forked, however they end; nothing has to be cleaned up. The file stays and says who had it.
#pragma once

#include <string>

namespace dstrain {

class OutputLock {
 public:
  // Takes the lock of an existing directory. Throws UserError naming the directory and who has it; where
  // the file system has no locks, says so in a warning and goes on without.
  explicit OutputLock(const std::string& directory);
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;
  ~OutputLock();

 private:
  int file_ = -1;
};

// Throws UserError where another run has the directory now; changes nothing, and none need be there.
void refuse_if_locked(const std::string& directory);

}  // namespace dstrain
