// OutputLock: the lock of an output directory, which one run uses at a time. It is an flock on the file
// `.dstrain.lock`, which forked ranks share. The system releases it when all these processes have ended, in
// any way. The file stays and names the last holder.
#pragma once

#include <string>

#include "runtime/core/error.h"

namespace dstrain {

// Another run has the lock of an output directory.
class OutputInUse : public UserError {
 public:
  using UserError::UserError;
};

class OutputLock {
 public:
  // Takes the lock of an existing directory. Throws OutputInUse, which names the directory and the holder, if
  // another run has it; UserError if the lock cannot be taken. If the file system has no locks, logs a warning and continues without.
  explicit OutputLock(const std::string& directory);
  OutputLock(const OutputLock&) = delete;
  OutputLock& operator=(const OutputLock&) = delete;
  ~OutputLock();

  // Returns what the file says about this holder; empty if the file system has no locks.
  const std::string& holder() const { return holder_; }

 private:
  int file_ = -1;
  std::string holder_;
};

// The environment variable in which a launching process passes OutputLock::holder() on to rank 0.
inline constexpr const char* kOutputHolderVariable = "DSTRAIN_OUTPUT_HOLDER";

// Returns whether the lock of the directory says that `holder` has it. A directory that was made or moved to this path
// after the lock was taken has another lock or none.
bool is_locked_by(const std::string& directory, const std::string& holder);

// Throws OutputInUse if another run holds the lock now. Takes no lock; the directory need not exist.
void refuse_if_locked(const std::string& directory);

}  // namespace dstrain
