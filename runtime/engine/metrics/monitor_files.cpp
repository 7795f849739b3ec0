#include "runtime/engine/metrics/monitor_files.h"

#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "runtime/core/error.h"
#include "runtime/storage/output_file.h"

namespace dstrain {

void make_monitor_directory(std::string_view monitor, const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error)
    fail_run("{}: cannot make the directory {}: {}; change {}.output_path or job_name", monitor,
             directory, error.message(), monitor);
}

int open_monitor_file(std::string_view monitor, const std::string& path, int flags) {
  const OutputFile file = open_output_file(path, flags);
  if (file.descriptor < 0) fail_run("{}: cannot write {}: {}", monitor, path, file.problem);
  return file.descriptor;
}

bool append_whole(int file, std::string_view text, int64_t size) {
  for (size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(file, text.data() + done, text.size() - done);
    if (n >= 0) {
      done += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      const int reason = errno;
      [[maybe_unused]] const int removed = ::ftruncate(file, size);
      errno = reason;
      return false;
    }
  }
  return true;
}

}  // namespace dstrain
