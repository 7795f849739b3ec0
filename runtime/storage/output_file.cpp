#include "runtime/storage/output_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <string_view>

#include "runtime/core/files/system_reason.h"

namespace dstrain {
namespace {

constexpr const char* kLink =
    "it is a symbolic link, and a run follows none that has the name of its file: remove the link";
constexpr const char* kNoFile = "something else than a regular file has its name: remove that";
constexpr std::string_view kProbeBegin = ".dstrain-";
constexpr std::string_view kProbePattern = "XXXXXX";

// Returns why a run must not write to the file; empty if it may.
std::string problem_of(const struct stat& status) {
  if (S_ISLNK(status.st_mode)) return kLink;
  if (!S_ISREG(status.st_mode)) return kNoFile;
  if (status.st_nlink <= 1) return "";
  return fmt::format(
      "the file has {} names (hard links), and a run would change it under all of them: remove "
      "this one, or copy the folder with cp -r instead of cp -l",
      status.st_nlink);
}

// Removes the empty files that runs left in the directory which ended while they tried to write there.
void remove_left_probes(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code none;
  for (fs::directory_iterator at(directory, none), end; !none && at != end; at.increment(none)) {
    const std::string name = at->path().filename().string();
    struct stat status {};
    if (name.size() == kProbeBegin.size() + kProbePattern.size() && name.starts_with(kProbeBegin) &&
        name.find('.', 1) == std::string::npos && ::lstat(at->path().c_str(), &status) == 0 &&
        S_ISREG(status.st_mode) && status.st_size == 0)
      ::unlink(at->path().c_str());
  }
}

}  // namespace

OutputFile open_output_file(const std::string& path, int flags) {
  // O_NONBLOCK: open() of a pipe would wait for a reader.
  // Truncated only when it is known to be a file of its own.
  const int file =
      ::open(path.c_str(),
             (flags & ~O_TRUNC) | O_CREAT | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  if (file < 0) {
    const int error = errno;
    if (error == ELOOP) return {-1, kLink};
    return {-1, error == EISDIR || error == ENXIO ? kNoFile : system_reason(error)};
  }
  struct stat status {};
  std::string problem = ::fstat(file, &status) == 0 ? problem_of(status) : system_reason(errno);
  if (problem.empty() && (flags & O_TRUNC) != 0 && ::ftruncate(file, 0) != 0)
    problem = system_reason(errno);
  if (problem.empty()) return {file, ""};
  ::close(file);
  return {-1, problem};
}

std::string output_file_problem(const std::string& path) {
  struct stat status {};
  return ::lstat(path.c_str(), &status) != 0 ? "" : problem_of(status);
}

std::string new_file_problem(const std::string& directory) {
  remove_left_probes(directory);
  // A file without a name cannot be left behind. Not all file systems have such files.
  if (const int file = ::open(directory.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600); file >= 0) {
    ::close(file);
    return "";
  }
  std::string probe = fmt::format("{}/{}{}", directory, kProbeBegin, kProbePattern);
  const int file = ::mkstemp(probe.data());
  if (file < 0) return system_reason(errno);
  ::close(file);
  ::unlink(probe.c_str());
  return "";
}

}  // namespace dstrain
