#include "runtime/storage/disk/disk_error.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstring>

namespace dstrain {
namespace {

std::string_view remedy(int error) {
  switch (error) {
    case ENOSPC:
      return "free space there, or name a directory on another drive";
    case EDQUOT:
      return "the disk quota is used up: free some of it, or name another directory";
    case EFBIG:
      return "the file would pass a size limit: see `ulimit -f` and the limits of the file system";
    case EACCES:
    case EPERM:
    case EROFS:
      return "name a directory that this user may write";
    case EIO:
      return "the drive or the network reports a fault: see `dmesg`, and name another drive";
    case EMFILE:
    case ENFILE:
      return "too many files are open: see `ulimit -n`";
    default:
      return "check the directory and its file system";
  }
}

}  // namespace

std::string disk_error(std::string_view what, int error) {
  return fmt::format("cannot {}: {}; {}", what, std::strerror(error), remedy(error));
}

}  // namespace dstrain
