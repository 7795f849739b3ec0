#include "runtime/data/file/data_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Opens a regular file that is not empty; returns its descriptor and status.
int open_checked(const std::string& path, struct stat& status) {
  // O_NONBLOCK: open() of a pipe would wait for a writer.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    fail_user("cannot read the data file {}: {}; give another with --data or dstrain.data.path",
              path, std::strerror(errno));
  const bool known = ::fstat(fd, &status) == 0;
  if (known && S_ISREG(status.st_mode) && status.st_size > 0) return fd;
  ::close(fd);
  if (known && S_ISDIR(status.st_mode))
    fail_user("the data path {} is a directory, expected one file of text or tokens", path);
  if (known && S_ISREG(status.st_mode)) fail_user("the data file {} is empty", path);
  fail_user("the data path {} is not a regular file; write the data to a file first", path);
}

}  // namespace

DataFile::DataFile(const std::string& path) : path_(path) {
  struct stat status {};
  file_ = open_checked(path, status);
  bytes_ = status.st_size;
  written_ = status.st_mtim;
  void* mapped = ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    ::close(file_);
    fail_user("cannot map the {} bytes of the data file {}: {}", bytes_, path,
              std::strerror(error));
  }
  data_ = static_cast<const unsigned char*>(mapped);
  watch_.emplace(data_, bytes_);
}

void DataFile::check_whole() const {
  if (!watch_->lost()) return;
  struct stat now {};
  ::fstat(file_, &now);
  fail_run(
      "the data file {} was cut short while it was read: it had {} bytes and has {}; restore it, "
      "and --resume from the last checkpoint",
      path_, bytes_, now.st_size);
}

void DataFile::check_unchanged() const {
  check_whole();
  struct stat now {};
  if (::fstat(file_, &now) != 0)
    fail_run("cannot look at the data file {} again: {}", path_, std::strerror(errno));
  if (now.st_size == bytes_ && now.st_mtim.tv_sec == written_.tv_sec &&
      now.st_mtim.tv_nsec == written_.tv_nsec)
    return;
  fail_run(
      "the data file {} was written to while the run read it (it had {} bytes and has {}): samples "
      "are no longer what they were; restore the old file and --resume from a checkpoint of "
      "before, "
      "or start again",
      path_, bytes_, now.st_size);
}

DataFile::~DataFile() {
  watch_.reset();
  ::close(file_);
  ::munmap(const_cast<unsigned char*>(data_), static_cast<size_t>(bytes_));
}

}  // namespace dstrain
