#include "runtime/comm/mpi/shared_files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr std::string_view kName = "/vader_segment.";

// Takes the room for a whole file. A file system that cannot do so leaves the file as it is.
void take_room(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file < 0) return;
  struct stat status {};
  int error = 0;
  if (::fstat(file, &status) == 0) {
    // Not posix_fallocate(), which would write where the file system cannot allocate.
    do error = ::fallocate(file, 0, 0, status.st_size) == 0 ? 0 : errno;
    while (error == EINTR);
  }
  ::close(file);
  if (error == ENOSPC)
    fail_run(
        "there is no room for the {} bytes of {}, through which ranks of this host exchange "
        "messages: free space there, or let TMPDIR name a directory with more, at the same path on "
        "all hosts",
        status.st_size, path);
}

}  // namespace

std::vector<std::string> shared_files(std::string_view maps, const std::string& directory) {
  std::vector<std::string> files;
  std::istringstream lines{std::string(maps)};
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find('/');
    if (begin == std::string::npos) continue;
    const std::string path = line.substr(begin);
    if (path.starts_with(directory + "/") && path.find(kName) != std::string::npos &&
        std::ranges::find(files, path) == files.end())
      files.push_back(path);
  }
  return files;
}

void take_room_of_shared_files() {
  const char* const directory = std::getenv("OMPI_MCA_btl_vader_backing_directory");
  if (!directory || *directory == '\0') return;
  std::ifstream in("/proc/self/maps");
  std::ostringstream maps;
  maps << in.rdbuf();
  for (const std::string& path : shared_files(maps.str(), directory)) take_room(path);
}

}  // namespace dstrain
