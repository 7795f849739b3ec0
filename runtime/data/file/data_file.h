// DataFile: the bytes of a data file, mapped read-only, so that ranks share the page cache and a file may be
// larger than memory. The file must not change while a run reads it; changes are detected (see below). It keeps its
// descriptor only while few are in use, so that a run may have more data files than descriptors.
#pragma once

#include <sys/stat.h>
#include <time.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/core/files/input_file.h"
#include "runtime/data/file/file_sums.h"
#include "runtime/data/file/mapped_file_loss.h"

namespace dstrain {

class DataFile {
 public:
  // Throws UserError if the file is missing, not a regular file, unreadable or empty.
  explicit DataFile(const std::string& path);
  DataFile(const DataFile&) = delete;
  DataFile& operator=(const DataFile&) = delete;
  ~DataFile();

  const std::string& path() const { return path_; }
  const unsigned char* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

  // From now on the file must have these checksums: checked() compares its pieces with them, and checksum() returns that of
  // the whole file unread. Throws UserError if the file has another size.
  void expect(FileSums sums);
  // Returns data() + begin, after comparing each piece that holds one of the `bytes` bytes from there on with the expected
  // checksums, if there are any, unless it was compared before. Throws RunError for a piece that differs. Allocates nothing.
  const unsigned char* checked(int64_t begin, int64_t bytes) const {
    if (compared_) compare_pieces(begin, begin + bytes);
    return data_ + begin;
  }

  // Throws RunError if the file was cut short and a read met the missing part, which reads as zeros. Costs one
  // load.
  void check_whole() const;
  // Returns a checksum of all bytes, computed at the first call unless it is expected.
  uint64_t checksum() const;
  // Throws RunError if the file's size has changed since it was opened, or its time, unless checksum() was called before
  // and the bytes are those of then: a copy or a touch changes the time alone. A file that was replaced by another one
  // of its name is unchanged; what happens to it afterwards is known only while its descriptor is open.
  void check_unchanged() const;

 private:
  // Returns the state of the mapped file; nothing if its name is now that of another file, or of none.
  std::optional<struct stat> state_now() const;
  void compare_pieces(int64_t begin, int64_t end) const;

  std::string path_;
  std::optional<InputFile> open_;  // absent: its descriptor was one too many
  dev_t device_ = 0;               // with file_number_: which file is mapped
  ino_t file_number_ = 0;
  const unsigned char* data_ = nullptr;
  int64_t bytes_ = 0;
  FileSums sums_;
  std::unique_ptr<std::atomic<bool>[]> compared_;  // by piece of sums_; null: none are expected
  mutable timespec written_{};  // time of the last change after which the bytes are known
  mutable std::optional<uint64_t> checksum_;
  std::optional<MappingWatch> watch_;
};

}  // namespace dstrain
