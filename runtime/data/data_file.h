// DataFile: the bytes of a data file, mapped read-only, so that ranks share the page cache and a file
// larger than memory works. Stands on POSIX. The file must not change while a run reads it; that it did is
// found out: see below.
#pragma once

#include <time.h>

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/data/mapped_file_loss.h"

namespace dstrain {

class DataFile {
 public:
  // Throws UserError where the file is missing, no regular file, unreadable or empty.
  explicit DataFile(const std::string& path);
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;
  ~DataFile();

  const std::string& path() const { return path_; }
  const unsigned char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  // Throws RunError where bytes were read that the file has lost since: they read as zeros. Costs next to
  // nothing.
  void check_whole() const;
  // Throws RunError where the file has been written to since it was opened, by its size and time. One that
  // another file has taken the name of is still there, unchanged.
  void check_unchanged() const;

 private:
  std::string path_;
  int file_ = -1;
  const unsigned char* data_ = nullptr;
  int64_t bytes_ = 0;
  timespec written_{};  // when it was last
  std::optional<MappingWatch> watch_;
};

}  // namespace dstrain
