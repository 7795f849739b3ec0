// InputFile: a file that is read because the user or an earlier run named it. Every such file is opened here, so that a
// path of the wrong type (a directory, a pipe, a device) is the same error wherever it is met first.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace dstrain {

class InputFile {
 public:
  // Opens a regular file for reading; never waits. `what` names it in messages ("the weights file"), `advice` ends them
  // ("give another with --data"). Throws UserError if it is missing, unreadable, or not a regular file.
  InputFile(std::string path, std::string_view what, std::string_view advice = {});

  InputFile(InputFile&& other) noexcept;
  InputFile& operator=(InputFile&& other) noexcept;
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;
  ~InputFile();

  const std::string& path() const { return path_; }
  int descriptor() const { return descriptor_; }
  // Returns the file's bytes now. Throws UserError.
  int64_t size() const;
  // Reads bytes [offset, offset + bytes). Throws UserError if the file ends before.
  void read_at(void* data, int64_t bytes, int64_t offset) const;

 private:
  std::string path_;
  int descriptor_ = -1;
};

// Returns whether `path` names a descriptor of this process, as a shell's <(...) and /dev/stdin do. No other process may
// find the same there.
bool names_own_descriptor(std::string_view path);

// Returns the whole file. Reads a pipe to its end if it is a descriptor of this process. Throws UserError as InputFile
// does, and if there are more than `limit` bytes.
std::string read_input_file(const std::string& path, std::string_view what, int64_t limit);

// Returns `text` without the UTF-8 byte order mark with which some editors begin a file.
std::string_view without_byte_order_mark(std::string_view text);

}  // namespace dstrain
