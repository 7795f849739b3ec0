// DataFile: the bytes of a data file, mapped read-only, so that ranks share the page cache and a file may be
// larger than memory. The file must not change while a run reads it; changes are detected (see below).
#pragma once

#include <time.h>

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/core/files/input_file.h"
#include "runtime/data/file/mapped_file_loss.h"

namespace dstrain {

class DataFile {
 public:
  // Throws UserError if the file is missing, not a regular file, unreadable or empty.
  explicit DataFile(const std::string& path);
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;
  ~DataFile();

  const std::string& path() const { return file_.path(); }
  const unsigned char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  // Throws RunError if the file was cut short and a read met the missing part, which reads as zeros. Costs one
  // load.
  void check_whole() const;
  // Returns a checksum of all bytes, computed at the first call.
  uint64_t checksum() const;
  // Throws RunError if the file's size has changed since it was opened, or its time, unless checksum() was called before
  // and the bytes are those of then: a copy or a touch changes the time alone. A file that was replaced by another one
  // of its name is unchanged.
  void check_unchanged() const;

 private:
  InputFile file_;
  const unsigned char* data_ = nullptr;
  int64_t bytes_ = 0;
  mutable timespec written_{};  // time of the last change after which the bytes are known
  mutable std::optional<uint64_t> checksum_;
  std::optional<MappingWatch> watch_;
};

}  // namespace dstrain
