#include "runtime/core/files/input_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/core/files/lfs_pointer.h"
#include "runtime/core/files/system_reason.h"

namespace dstrain {
namespace {

constexpr int64_t kLargestRead = int64_t{1}
                                 << 30;  // Linux moves at most 2^31 - 4096 bytes per call

std::string after_semicolon(std::string_view advice) {
  return advice.empty() ? "" : fmt::format("; {}", advice);
}

[[noreturn]] void fail_to_read(std::string_view what, const std::string& path, int error,
                               std::string_view advice) {
  fail_user("cannot read {} {}: {}{}", what, path, system_reason(error), after_semicolon(advice));
}

// Throws UserError unless `mode` is that of a regular file.
void check_type(mode_t mode, std::string_view what, const std::string& path,
                std::string_view advice) {
  if (S_ISREG(mode)) return;
  if (S_ISDIR(mode))
    fail_user("{} {} is a directory, expected a file{}", what, path, after_semicolon(advice));
  if (S_ISFIFO(mode))
    fail_user("{} {} is a pipe, expected a regular file: save what it gives in one{}", what, path,
              after_semicolon(advice));
  fail_user("{} {} is a {}, expected a regular file{}", what, path,
            S_ISSOCK(mode) ? "socket" : "device", after_semicolon(advice));
}

bool is_own_pipe(const std::string& path) {
  struct stat status {};
  return names_own_descriptor(path) && ::stat(path.c_str(), &status) == 0 &&
         S_ISFIFO(status.st_mode);
}

std::string read_pipe(const std::string& path, std::string_view what, int64_t limit) {
  // O_NONBLOCK: open() would wait for ever where the writers have finished.
  const int pipe = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (pipe < 0 || ::fcntl(pipe, F_SETFL, 0) != 0) fail_to_read(what, path, errno, "");
  std::string text;
  std::array<char, 1 << 16> block{};
  ssize_t n = 0;
  while (std::ssize(text) <= limit &&
         ((n = ::read(pipe, block.data(), block.size())) > 0 || (n < 0 && errno == EINTR)))
    if (n > 0) text.append(block.data(), static_cast<size_t>(n));
  const int error = n < 0 ? errno : 0;
  ::close(pipe);
  if (error != 0) fail_to_read(what, path, error, "");
  if (std::ssize(text) > limit)
    fail_user("{} {} has more than {} bytes, expected at most these", what, path, limit);
  return text;
}

}  // namespace

InputFile::InputFile(std::string path, std::string_view what, std::string_view advice)
    : path_(std::move(path)) {
  struct stat status {};
  // Opening a device may already act on it, so its type is looked at before.
  if (::stat(path_.c_str(), &status) != 0) fail_to_read(what, path_, errno, advice);
  check_type(status.st_mode, what, path_, advice);
  // O_NONBLOCK: open() of a pipe that has taken the file's name since would wait for a writer.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor_ < 0) fail_to_read(what, path_, errno, advice);
  const int error = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error == 0 && S_ISREG(status.st_mode)) return;
  ::close(std::exchange(descriptor_, -1));  // a constructor that throws has no destructor
  if (error != 0) fail_to_read(what, path_, error, advice);
  check_type(status.st_mode, what, path_, advice);
}

InputFile::InputFile(InputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

InputFile& InputFile::operator=(InputFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

InputFile::~InputFile() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

int64_t InputFile::size() const {
  struct stat status {};
  if (::fstat(descriptor_, &status) != 0)
    fail_user("cannot read the size of {}: {}", path_, system_reason(errno));
  return status.st_size;
}

void InputFile::read_at(void* data, int64_t bytes, int64_t offset) const {
  char* to = static_cast<char*>(data);
  while (bytes > 0) {
    const auto n = static_cast<size_t>(std::min(bytes, kLargestRead));
    const ssize_t done = ::pread(descriptor_, to, n, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0)
      fail_user("cannot read {} bytes at offset {} of {}: {}", bytes, offset, path_,
                system_reason(errno));
    if (done == 0)
      fail_user("{} is cut short: it ends at byte {}, {} more are expected there", path_, offset,
                bytes);
    to += done;
    offset += done;
    bytes -= done;
  }
}

bool names_own_descriptor(std::string_view path) {
  return path == "/dev/stdin" || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/fd/");
}

std::string read_input_file(const std::string& path, std::string_view what, int64_t limit) {
  if (is_own_pipe(path)) return read_pipe(path, what, limit);
  const InputFile file(path, what);
  const int64_t bytes = file.size();
  if (bytes > limit) fail_user("{} {} has {} bytes, expected at most {}", what, path, bytes, limit);
  std::string text(static_cast<size_t>(bytes), '\0');
  file.read_at(text.data(), bytes, 0);
  refuse_lfs_pointer(text, path);
  return text;
}

std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view mark = "\xef\xbb\xbf";
  if (text.starts_with(mark)) text.remove_prefix(mark.size());
  return text;
}

}  // namespace dstrain
