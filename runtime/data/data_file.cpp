#include "runtime/data/data_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// The descriptor and size of a regular, readable file that is not empty.
int open_checked(const std::string& path, int64_t& bytes) {
  // Without O_NONBLOCK a pipe of that name would hang here.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    fail_user("cannot read the data file {}: {}; give another with --data or dstrain.data.path",
              path, std::strerror(errno));
  struct stat status {};
  const bool known = ::fstat(fd, &status) == 0;
  bytes = status.st_size;
  if (known && S_ISREG(status.st_mode) && bytes > 0) return fd;
  ::close(fd);
  if (known && S_ISDIR(status.st_mode))
    fail_user("the data path {} is a directory, expected one file of text or tokens", path);
  if (known && S_ISREG(status.st_mode)) fail_user("the data file {} is empty", path);
  fail_user("the data path {} is not a regular file; write the data to a file first", path);
}

}  // namespace

DataFile::DataFile(const std::string& path) : path_(path) {
  const int fd = open_checked(path, bytes_);
  void* mapped = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ, MAP_SHARED, fd, 0);
  const int error = errno;
  ::close(fd);  // the mapping keeps the file
  if (mapped == MAP_FAILED)
    fail_user("cannot map the {} bytes of the data file {}: {}", bytes_, path,
              std::strerror(error));
  data_ = static_cast<const unsigned char*>(mapped);
}

DataFile::~DataFile() {
  ::munmap(const_cast<unsigned char*>(data_), static_cast<size_t>(bytes_));
}

}  // namespace dstrain
