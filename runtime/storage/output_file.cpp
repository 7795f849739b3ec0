#include "runtime/storage/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "runtime/core/files/system_reason.h"

namespace dstrain {
namespace {

constexpr const char* kLink =
    "it is a symbolic link, and a run follows none that has the name of its file: remove the link";
constexpr const char* kNoFile = "something else than a regular file has its name: remove that";

}  // namespace

OutputFile open_output_file(const std::string& path, int flags) {
  // O_NONBLOCK: open() of a pipe would wait for a reader.
  const int file =
      ::open(path.c_str(), flags | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (file < 0) {
    const int error = errno;
    if (error == ELOOP) return {-1, kLink};
    return {-1, error == EISDIR || error == ENXIO ? kNoFile : system_reason(error)};
  }
  struct stat status {};
  if (::fstat(file, &status) == 0 && S_ISREG(status.st_mode)) return {file, ""};
  ::close(file);
  return {-1, kNoFile};
}

std::string output_file_problem(const std::string& path) {
  struct stat status {};
  if (::lstat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return "";
  return S_ISLNK(status.st_mode) ? kLink : kNoFile;
}

}  // namespace dstrain
