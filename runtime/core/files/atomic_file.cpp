#include "runtime/core/files/atomic_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/core/files/no_room_error.h"

namespace dstrain {
namespace {

constexpr int64_t kLargestCall = int64_t{1}
                                 << 30;  // Linux moves at most 2^31 - 4096 bytes per call

std::string_view advice(int error) {
  switch (error) {
    case ENOSPC:
      return "free disk space or choose another --output";
    case EDQUOT:
      return "the disk quota is used up: free some of it or choose another --output";
    case EFBIG:
      return "the file would pass a size limit: see `ulimit -f` and the limits of the file system";
    case EMFILE:
      return "too many files are open: see `ulimit -n`";
    case EACCES:
    case EPERM:
    case EROFS:
      return "choose an --output that this user may write";
    case EIO:
      return "the disk or network file system reports a fault: see its logs, choose another "
             "--output";
    default:
      return "check the path and its file system";
  }
}

[[noreturn]] void fail_write(std::string_view what, const std::string& path, int error) {
  const std::string text =
      fmt::format("cannot {} {}: {}; {}", what, path, std::strerror(error), advice(error));
  if (error == ENOSPC || error == EDQUOT) throw NoRoomError(text);
  throw RunError(text);
}

std::string parent_of(const std::string& path) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

}  // namespace

File File::create(const std::string& path) {
  File file;
  file.path_ = path;
  constexpr int flags = O_WRONLY | O_NOFOLLOW | O_CLOEXEC;
  constexpr int kTries = 3;  // others may make it again in between
  for (int i = 0; i < kTries && file.fd_ < 0; ++i) {
    file.fd_ = ::open(path.c_str(), flags | O_CREAT | O_EXCL, 0666);
    struct stat there {};
    if (file.fd_ >= 0 || errno != EEXIST || ::lstat(path.c_str(), &there) != 0) continue;
    if (S_ISREG(there.st_mode) || S_ISLNK(there.st_mode))
      ::unlink(path.c_str());
    else
      file.fd_ = ::open(path.c_str(), flags | O_NONBLOCK);  // of a pipe it would wait
  }
  if (file.fd_ < 0) fail_write("create", path, errno);
  return file;
}

File& File::operator=(File&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

void File::write_at(const void* data, int64_t bytes, int64_t offset) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const auto n = static_cast<size_t>(std::min(bytes, kLargestCall));
    const ssize_t done = ::pwrite(fd_, from, n, offset);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0)
      fail_write(fmt::format("write {} bytes at offset {} of", bytes, offset), path_, errno);
    from += done;
    offset += done;
    bytes -= done;
  }
}

void File::sync() {
  if (::fsync(fd_) != 0) fail_write("sync", path_, errno);
}

void File::close() {
  if (::close(std::exchange(fd_, -1)) != 0) fail_write("close", path_, errno);
}

NewFile::NewFile(std::string path) : path_(std::move(path)), file_(File::create(path_ + ".tmp")) {}

NewFile::~NewFile() {
  if (!committed_) ::unlink((path_ + ".tmp").c_str());
}

void NewFile::complete() {
  if (complete_) return;
  file_.sync();
  file_.close();
  complete_ = true;
}

void NewFile::commit() {
  complete();
  if (::rename((path_ + ".tmp").c_str(), path_.c_str()) != 0)
    fail_write("rename the temporary file to", path_, errno);
  committed_ = true;
  sync_directory(parent_of(path_));
}

std::string file_to_replace(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::path target = path;
  constexpr int kMostLinks = 40;  // as the system
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(target, error)); ++i)
    target = target.parent_path() / fs::read_symlink(target, error);
  const fs::file_status status = fs::status(target, error);
  if (fs::exists(status) && !fs::is_regular_file(status))
    fail_run("cannot replace {}: it is not a regular file; name another one", path);
  return target.string();
}

void write_file(const std::string& path, std::string_view bytes) {
  NewFile file(path);
  file.write_at(bytes.data(), static_cast<int64_t>(bytes.size()), 0);
  file.commit();
}

void remove_file(const std::string& path) {
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) fail_write("remove", path, errno);
}

void make_directory(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail_write("make the directory", path, error.value());
}

void sync_directory(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail_write("open the directory", path, errno);
  const int error = ::fsync(fd) == 0 ? 0 : errno;
  ::close(fd);
  // Some network file systems do not support fsync on directories and do not need it.
  if (error != 0 && error != EINVAL) fail_write("sync the directory", path, error);
}

}  // namespace dstrain
