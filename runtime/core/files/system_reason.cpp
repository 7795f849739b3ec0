#include "runtime/core/files/system_reason.h"

#include <cerrno>
#include <cstring>

namespace dstrain {

std::string system_reason(int error) {
  const std::string text = std::strerror(error);
  switch (error) {
    case EMFILE:
      return text + " (see `ulimit -n`)";
    case EFBIG:
      return text + " (see `ulimit -f`)";
    case EAGAIN:  // of fork() and of starting a thread
      return text + " (see `ulimit -u`, and pids.max of the control group)";
    default:
      return text;
  }
}

}  // namespace dstrain
