#include "runtime/data/file/data_file.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>

#include "runtime/core/checksum.h"
#include "runtime/core/error.h"

namespace dstrain {
DataFile::DataFile(const std::string& path)
    : file_(path, "the data file", "give another with --data or dstrain.data.path") {
  struct stat status {};
  if (::fstat(file_.descriptor(), &status) != 0)
    fail_user("cannot read the size of the data file {}: {}", path, std::strerror(errno));
  if (status.st_size == 0) fail_user("the data file {} is empty", path);
  bytes_ = status.st_size;
  written_ = status.st_mtim;
  void* mapped =
      ::mmap(nullptr, static_cast<size_t>(bytes_), PROT_READ, MAP_SHARED, file_.descriptor(), 0);
  if (mapped == MAP_FAILED)
    fail_user("cannot map the {} bytes of the data file {}: {}", bytes_, path,
              std::strerror(errno));
  data_ = static_cast<const unsigned char*>(mapped);
  watch_.emplace(data_, bytes_);
}

void DataFile::check_whole() const {
  if (!watch_->lost()) return;
  struct stat now {};
  ::fstat(file_.descriptor(), &now);
  fail_run(
      "the data file {} was cut short while it was read: it had {} bytes and has {}; restore it, "
      "and --resume from the last checkpoint",
      path(), bytes_, now.st_size);
}

uint64_t DataFile::checksum() const {
  if (!checksum_) checksum_ = checksum_of_many(data_, bytes_);
  return *checksum_;
}

void DataFile::check_unchanged() const {
  check_whole();
  struct stat now {};
  if (::fstat(file_.descriptor(), &now) != 0)
    fail_run("cannot look at the data file {} again: {}", path(), std::strerror(errno));
  if (now.st_size == bytes_ && now.st_mtim.tv_sec == written_.tv_sec &&
      now.st_mtim.tv_nsec == written_.tv_nsec)
    return;
  if (now.st_size == bytes_ && checksum_) {
    const bool same = checksum_of_many(data_, bytes_) == *checksum_;
    check_whole();
    if (same) {
      written_ = now.st_mtim;
      return;
    }
  }
  fail_run(
      "the data file {} was written to while the run read it (it had {} bytes and has {}): samples "
      "are no longer what they were; restore the old file and --resume from a checkpoint of "
      "before, "
      "or start again",
      path(), bytes_, now.st_size);
}

DataFile::~DataFile() {
  watch_.reset();
  ::munmap(const_cast<unsigned char*>(data_), static_cast<size_t>(bytes_));
}

}  // namespace dstrain
