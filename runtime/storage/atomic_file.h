// Files that a crash cannot tear. Stands on POSIX. A file is written beside its place (`path`.tmp),
// synced and renamed, so that at any moment `path` is the old file or the whole new one.
// Errors name the path, the offset, the system's reason and what to do about it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dstrain {

// A file descriptor with its path. Writing fails with RunError, reading with UserError: what is read
// was named by the user.
class File {
 public:
  File() = default;
  // A new empty file; an old one of that name is emptied.
  static File create(const std::string& path);
  // An existing regular file. `what` names it in errors ("weights file").
  static File open(const std::string& path, std::string_view what);

  File(File&& other) noexcept { *this = std::move(other); }
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  const std::string& path() const { return path_; }
  int64_t size() const;
  void write_at(const void* data, int64_t bytes, int64_t offset);
  // Throws where the file ends before offset + bytes.
  void read_at(void* data, int64_t bytes, int64_t offset) const;
  void sync();
  // Closes and reports what a delayed write may have failed with; the destructor closes silently.
  void close();

 private:
  std::string path_;
  int fd_ = -1;
};

// A file under construction beside `path`; commit() puts it in place, without it nothing remains.
class NewFile {
 public:
  explicit NewFile(std::string path);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  const std::string& path() const { return path_; }  // where it will be
  void write_at(const void* data, int64_t bytes, int64_t offset) {
    file_.write_at(data, bytes, offset);
  }
  void commit();

 private:
  std::string path_;
  File file_;
  bool committed_ = false;
};

// Replaces the file at `path` by `bytes`, all or nothing. Throws RunError.
void write_file(const std::string& path, std::string_view bytes);

// The whole file; throws UserError where it is missing, not a regular file, or longer than `limit`.
std::string read_file(const std::string& path, std::string_view what, int64_t limit);

// Makes the directory and its parents where they are missing. Throws RunError.
void make_directory(const std::string& path);

// Makes the names in a directory durable.
void sync_directory(const std::string& path);

}  // namespace dstrain
