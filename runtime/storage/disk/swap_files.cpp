#include "runtime/storage/disk/swap_files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <map>
#include <random>
#include <system_error>

#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/core/text.h"
#include "runtime/storage/disk/disk_error.h"
#include "runtime/storage/disk/disk_layout.h"
#include "runtime/storage/free_space.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// A file's name: this beginning, the host's name, 16 random hex digits, this end.
constexpr std::string_view kSwapPrefix = "dstrain-", kSwapSuffix = ".swap";
constexpr size_t kSwapDigits = 16;

std::string this_host() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0) return "unknown";
  return name.data();
}

std::string new_swap_path(const std::string& directory) {
  std::random_device source;
  const uint64_t number = uint64_t{source()} << 32 | source();
  return fmt::format("{}/{}{}-{:0{}x}{}", directory, kSwapPrefix, this_host(), number, kSwapDigits,
                     kSwapSuffix);
}

// Returns the host in the name of a swap file; empty if the file is none.
std::string host_of_swap_file(std::string_view name) {
  if (!name.starts_with(kSwapPrefix) || !name.ends_with(kSwapSuffix)) return "";
  name.remove_prefix(kSwapPrefix.size());
  name.remove_suffix(kSwapSuffix.size());
  const size_t dash = name.rfind('-');
  if (dash == std::string_view::npos || name.size() - dash - 1 != kSwapDigits ||
      name.find_first_not_of("0123456789abcdef", dash + 1) != std::string_view::npos)
    return "";
  return std::string(name.substr(0, dash));
}

// Returns whether other hosts may have the file system, too: their locks may then be unknown here.
bool may_be_shared(int file) {
  struct statfs found {};
  if (::fstatfs(file, &found) != 0) return true;
  constexpr std::array<uint32_t, 6> local{0xEF53,       // ext2, ext3, ext4
                                          0x58465342,   // xfs
                                          0x9123683E,   // btrfs
                                          0xF2F52010,   // f2fs
                                          0x01021994,   // tmpfs
                                          0x2FC12FC1};  // zfs
  return std::ranges::find(local, static_cast<uint32_t>(found.f_type)) == local.end();
}

// Removes the file if its run has ended. Returns a line about it; empty if the file stays, or if it was empty: it may be
// one that another rank has created and not yet locked, which then creates another (SwapFile::create()).
std::string remove_if_dead(const fs::path& path, const std::string& host) {
  const int file = ::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC);
  if (file < 0) return "";  // another user's, or gone already
  struct stat status {};
  const bool dead = ::fstat(file, &status) == 0 && S_ISREG(status.st_mode) &&
                    (host == this_host() || !may_be_shared(file)) &&
                    ::flock(file, LOCK_EX | LOCK_NB) == 0 && ::unlink(path.c_str()) == 0;
  ::close(file);
  return dead && status.st_size > 0
             ? fmt::format("removed {} ({}), which a run that has ended left", path.string(),
                           bytes_text(static_cast<double>(status.st_size)))
             : "";
}

void make_swap_directory(const std::string& directory) {
  std::error_code error;
  fs::create_directories(directory, error);
  if (!error && !fs::is_directory(directory, error)) error.assign(ENOTDIR, std::system_category());
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

// One file of SwapFiles.
class SwapFile {
 public:
  SwapFile(const std::string& directory, int64_t bytes, IoCalls& calls) {
    create(directory, calls);
    if (bytes == 0) return;
    if (const int status = calls.reserve(file_, bytes); status < 0) {
      remove();
      fail_run("{}", disk_error(fmt::format("reserve {} in {} ({} are free)",
                                            bytes_text(static_cast<double>(bytes)), path_,
                                            bytes_text(static_cast<double>(
                                                calls.free_bytes(directory).value_or(0)))),
                                -status));
    }
  }
  SwapFile(const SwapFile&) = delete;
  SwapFile& operator=(const SwapFile&) = delete;
  ~SwapFile() { remove(); }

  int descriptor() const { return file_; }
  const std::string& path() const { return path_; }

  // Returns whether direct reads work. Some file systems take the flag and fail later.
  bool try_direct(IoCalls& calls) const {
    alignas(kDiskBlock) std::array<std::byte, kDiskBlock> block;
    return calls.set_direct(file_, true) == 0 && calls.read(file_, block) >= 0;
  }

 private:
  // A run that starts at the same moment may take the new file for a dead one until it is locked; then another is
  // created.
  void create(const std::string& directory, IoCalls& calls) {
    for (bool linked = false; !linked;) {
      remove();
      path_ = new_swap_path(directory);
      file_ = calls.create(path_);
      if (file_ < 0) {
        const int error = -file_;
        file_ = -1;
        fail_user("{}", disk_error("create " + path_, error));
      }
      while (::flock(file_, LOCK_EX) != 0) {
        if (errno == EINTR) continue;
        log::warn("{} cannot be locked ({}): after a crash no later run would remove it", path_,
                  std::strerror(errno));
        return;
      }
      struct stat status {};
      linked = ::fstat(file_, &status) != 0 || status.st_nlink > 0;
    }
  }

  void remove() {
    if (file_ < 0) return;
    ::unlink(path_.c_str());
    ::close(file_);
    file_ = -1;
  }

  std::string path_;
  int file_ = -1;
};

SwapFiles::SwapFiles(const std::vector<std::string>& directories, int64_t bytes_each,
                     IoCalls& calls)
    : calls_(calls), bytes_each_(bytes_each) {
  check(!directories.empty(), "a disk store without a directory");
  for (const std::string& directory : directories) {
    make_swap_directory(directory);
    for (const std::string& line : remove_dead_swap_files(directory)) log::warn("{}", line);
  }
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
      (*buffered)->path());
  for (const auto& file : files_) calls.set_direct(file->descriptor(), false);
}

SwapFiles::~SwapFiles() = default;

int SwapFiles::descriptor(int file) const {
  return files_[static_cast<size_t>(file)]->descriptor();
}

const std::string& SwapFiles::path(int file) const {
  return files_[static_cast<size_t>(file)]->path();
}

std::vector<std::string> remove_dead_swap_files(const std::string& directory) {
  std::vector<std::string> lines;
  std::error_code none;
  for (fs::directory_iterator at(directory, none), end; !none && at != end; at.increment(none)) {
    const std::string host = host_of_swap_file(at->path().filename().string());
    if (host.empty()) continue;
    std::string line = remove_if_dead(at->path(), host);
    if (!line.empty()) lines.push_back(std::move(line));
  }
  return lines;
}

}  // namespace dstrain
