// Atomic files: a file is written as `path`.tmp, synced and renamed, so that after a crash `path` is either the
// old file or the complete new one. Errors name the path, the offset, the system's reason and what to do.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dstrain {

// A file descriptor with its path, for writing. Errors are RunErrors.
class File {
 public:
  File() = default;
  // Creates an empty file in the place of one of that name, or of a symbolic link, which is not followed. Opens a device
  // as it is.
  static File create(const std::string& path);

  File(File&& other) noexcept { *this = std::move(other); }
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  const std::string& path() const { return path_; }
  void write_at(const void* data, int64_t bytes, int64_t offset);
  void sync();
  // Closes the file and reports errors of delayed writes. The destructor ignores them.
  void close();

 private:
  std::string path_;
  int fd_ = -1;
};

// A file that is written as `path`.tmp. commit() renames it; without commit() the destructor removes it. Where several
// files belong together, the caller completes all of them before it commits the first.
class NewFile {
 public:
  explicit NewFile(std::string path);
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;
  ~NewFile();

  const std::string& path() const { return path_; }  // the final path
  void write_at(const void* data, int64_t bytes, int64_t offset) {
    file_.write_at(data, bytes, offset);
  }
  // Makes the content durable under the temporary name. Nothing may be written after it.
  void complete();
  void commit();

 private:
  std::string path_;
  File file_;
  bool complete_ = false, committed_ = false;
};

// Returns the file that a file named by the user is written to: `path`, or where a symbolic link of that name leads.
// Throws RunError if something else than a regular file is there: renaming would replace a device or a pipe.
std::string file_to_replace(const std::string& path);

// Replaces the file at `path` by `bytes` atomically. Throws RunError.
void write_file(const std::string& path, std::string_view bytes);

// Removes the file at `path`, or a symbolic link of that name, if there is one. Throws RunError if it stays.
void remove_file(const std::string& path);

// Creates the directory and its parents if they are missing. Throws RunError.
void make_directory(const std::string& path);

// Makes renames and new files in a directory durable. Throws RunError.
void sync_directory(const std::string& path);

}  // namespace dstrain
