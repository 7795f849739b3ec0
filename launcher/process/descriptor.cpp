#include "launcher/process/descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>

#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"

namespace dstrain {

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Pipe::Pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0)
    fail_run("cannot make a pipe: {}", system_reason(errno));
  read = Descriptor(ends[0]);
  write = Descriptor(ends[1]);
  ::fcntl(ends[0], F_SETFL, O_NONBLOCK);
}

void open_closed_streams() {
  while (true) {
    const int lowest = ::open("/dev/null", O_RDONLY);  // the lowest number that is free
    if (lowest >= 0 && lowest <= STDERR_FILENO) continue;
    if (lowest >= 0) ::close(lowest);
    return;
  }
}

}  // namespace dstrain
