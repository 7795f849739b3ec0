// OutputLock: the lock of an output directory, which one run uses at a time. It is an flock on the file
// `.dstrain.lock`, which forked ranks share. The system releases it when all these processes have ended, in
// any way. The file stays and names the last holder.
#pragma once

#include <string>

namespace dstrain {

class OutputLock {
 public:
  // Takes the lock of an existing directory. Throws UserError, which names the directory and the holder, if
  // another run has it. If the file system has no locks, logs a warning and continues without.
  explicit OutputLock(const std::string& directory);
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;
  ~OutputLock();

 private:
  int file_ = -1;
};

// Throws UserError if another run holds the lock now. Takes no lock; the directory need not exist.
void refuse_if_locked(const std::string& directory);

}  // namespace dstrain
