// DataFile: the bytes of a data file, mapped read-only, so that ranks share the page cache and a file
// larger than memory works. Stands on POSIX. The file must not shrink while a run reads it.
#pragma once

#include <cstdint>
#include <string>

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

 private:
  std::string path_;
  const unsigned char* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace dstrain
