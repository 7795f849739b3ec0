#include "launcher/process/pid_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "launcher/process/descriptor.h"
#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"

namespace dstrain {

PidFile::PidFile(const std::string& directory)
    : path_(fmt::format("{}/{}.deepspeed", directory, ::getpid())) {
  ::unlink(path_.c_str());
  // A link at this path, which another user may have made, is never followed.
  const Descriptor file(
      ::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644));
  const std::string text = std::to_string(::getpid());
  if (file.get() < 0 ||
      ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()))
    fail_run("--save_pid: cannot write {}: {}", path_, system_reason(errno));
}

PidFile::~PidFile() {
  ::unlink(path_.c_str());
}

}  // namespace dstrain
