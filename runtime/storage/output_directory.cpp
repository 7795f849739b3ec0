#include "runtime/storage/output_directory.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {

OutputDirectory::OutputDirectory(std::string path) : path_(std::move(path)) {
  directory_ = ::open(path_.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC);
  struct stat status {};
  if (directory_ < 0 || ::fstat(directory_, &status) != 0) {
    const int error = errno;
    if (directory_ >= 0) ::close(directory_);
    fail_run("cannot open the output directory {}: {}", path_, std::strerror(error));
  }
  device_ = status.st_dev;
  number_ = status.st_ino;
}

OutputDirectory::~OutputDirectory() {
  ::close(directory_);
}

bool OutputDirectory::is_there() const {
  struct stat status {};
  if (::stat(path_.c_str(), &status) != 0) return errno != ENOENT && errno != ENOTDIR;
  return status.st_dev == device_ && status.st_ino == number_;
}

void OutputDirectory::require() const {
  if (!is_there()) fail_removed(path_);
}

void OutputDirectory::fail_removed(const std::string& path) {
  fail_run(
      "the output directory {} was removed or replaced: the run has written nothing there since, "
      "and continues from a checkpoint that was moved along (--resume)",
      path);
}

}  // namespace dstrain
