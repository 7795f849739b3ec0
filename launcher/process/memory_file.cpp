#include "launcher/process/memory_file.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"

namespace dstrain {

Descriptor memory_file(const char* name, std::string_view text) {
  Descriptor file(::memfd_create(name, MFD_CLOEXEC));
  if (file.get() < 0) fail_run("cannot make a file in memory: {}", system_reason(errno));
  for (size_t written = 0; written < text.size();) {
    const ssize_t n = ::pwrite(file.get(), text.data() + written, text.size() - written,
                               static_cast<off_t>(written));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) fail_run("cannot write a file in memory: {}", system_reason(errno));
    written += static_cast<size_t>(n);
  }
  return file;
}

}  // namespace dstrain
