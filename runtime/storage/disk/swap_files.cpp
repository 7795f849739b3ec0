#include "runtime/storage/disk/swap_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <map>
#include <random>
#include <system_error>

#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/core/text.h"
#include "runtime/storage/disk/disk_error.h"
#include "runtime/storage/disk/disk_layout.h"
#include "runtime/storage/disk/free_space.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

std::string new_swap_path(const std::string& directory) {
  std::random_device source;
  const uint64_t number = uint64_t{source()} << 32 | source();
  return fmt::format("{}/dstrain-{:016x}.swap", directory, number);
}

void make_swap_directory(const std::string& directory) {
  existing_swap_directory(directory);
  std::error_code error;
  fs::create_directory(directory, error);
  if (std::error_code none; fs::exists(directory, none) && !fs::is_directory(directory, none))
    error.assign(ENOTDIR, std::system_category());
  if (error)
    fail_user("{}", disk_error(fmt::format("make the directory {}", directory), error.value()));
}

// Throws UserError if a file system lacks the space for its files.
void require_space(const std::vector<std::string>& directories, int64_t bytes_each,
                   IoCalls& calls) {
  std::map<dev_t, int64_t> needed;  // of each file system
  for (const std::string& directory : directories) {
    struct stat status {};
    if (::stat(directory.c_str(), &status) != 0)
      fail_user("{}", disk_error(fmt::format("look into {}", directory), errno));
    const int64_t bytes = needed[status.st_dev] += bytes_each;
    const std::string lack =
        lack_of_space("the disk store", bytes, calls.free_bytes(directory), directory);
    if (!lack.empty())
      fail_user("{}: free space there, or name a directory on a larger drive", lack);
  }
}

}  // namespace

// One file of SwapFiles. It has no name, so the system frees its blocks when this process ends, in any way.
class SwapFile {
 public:
  SwapFile(const std::string& directory, int64_t bytes, IoCalls& calls)
      : name_(fmt::format("the swap file in {}", directory)), file_(create(directory, calls)) {
    const int status = bytes == 0 ? 0 : calls.reserve(file_, bytes);
    if (status >= 0) return;
    ::close(file_);
    fail_run("{}", disk_error(fmt::format("reserve {} for {} ({} are free)",
                                          bytes_text(static_cast<double>(bytes)), name_,
                                          bytes_text(static_cast<double>(
                                              calls.free_bytes(directory).value_or(0)))),
                              -status));
  }
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;
  ~SwapFile() { ::close(file_); }

  int descriptor() const { return file_; }
  const std::string& name() const { return name_; }

  // Returns whether direct reads work. Some file systems take the flag and fail later.
  bool try_direct(IoCalls& calls) const {
    alignas(kDiskBlock) std::array<std::byte, kDiskBlock> block;
    return calls.set_direct(file_, true) == 0 && calls.read(file_, block) >= 0;
  }

 private:
  static int create(const std::string& directory, IoCalls& calls) {
    int file = calls.create_unnamed(directory);
    if (file == -EOPNOTSUPP || file == -EISDIR) {  // as network file systems answer
      const std::string path = new_swap_path(directory);
      file = calls.create(path);
      if (file >= 0) ::unlink(path.c_str());
    }
    if (file < 0)
      fail_user("{}", disk_error(fmt::format("create a swap file in {}", directory), -file));
    return file;
  }

  std::string name_;  // for messages
  int file_;
};

std::string existing_swap_directory(const std::string& directory) {
  std::error_code error;
  if (fs::exists(directory, error)) return directory;
  fs::path path = fs::absolute(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const fs::path parent = path.parent_path();
  if (!fs::exists(parent, error))
    fail_user(
        "nvme_path {}: neither this directory nor {}, in which it would be made, is there: mount "
        "the drive, make the "
        "directory (mkdir -p), or name another",
        directory, parent.string());
  return parent.string();
}

SwapFiles::SwapFiles(const std::vector<std::string>& directories, int64_t bytes_each,
                     IoCalls& calls)
    : calls_(calls), bytes_each_(bytes_each) {
  check(!directories.empty(), "a disk store without a directory");
  for (const std::string& directory : directories) make_swap_directory(directory);
  require_space(directories, bytes_each, calls);
  for (const std::string& directory : directories)
    files_.push_back(std::make_unique<SwapFile>(directory, bytes_each, calls));
  const auto buffered =
      std::ranges::find_if(files_, [&calls](const auto& file) { return !file->try_direct(calls); });
  direct_ = buffered == files_.end();
  if (direct_) return;
  log::warn(
      "the file system of {} has no direct I/O (O_DIRECT): the disk store goes through the page "
      "cache, which takes memory and is slower",
      (*buffered)->name());
  for (const auto& file : files_) calls.set_direct(file->descriptor(), false);
}

SwapFiles::~SwapFiles() = default;

int SwapFiles::descriptor(int file) const {
  return files_[static_cast<size_t>(file)]->descriptor();
}

const std::string& SwapFiles::name(int file) const {
  return files_[static_cast<size_t>(file)]->name();
}

}  // namespace dstrain
