// A library that a test puts in front of a program's system calls (LD_PRELOAD), to let its drives fail. DRIVE_FAULT says
// how: `eio` and `enospc`: from the 30th one on, requests fail; `short`: every request of several blocks ends after one;
// `full`: no blocks can be reserved; `small`: file systems say that one block is free; `quota`: what ranks write of a
// checkpoint exceeds the user's quota while there are two others beside it;
// `weights`: the disk is full for model.safetensors. DRIVE_KILL_AT=N kills the program before its Nth change of a name, which
// is a file renamed or removed.
#include <dlfcn.h>
#include <libaio.h>
#include <signal.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace {

constexpr unsigned long kBlock = 4096;
constexpr int kHealthyRequests = 30;

bool fault_is(std::string_view kind) {
  const char* const fault = std::getenv("DRIVE_FAULT");
  return fault != nullptr && kind == fault;
}

template <class Function>
Function next_of(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

unsigned long failed(int error) {
  return static_cast<unsigned long>(-static_cast<long>(error));
}

std::filesystem::path path_of(int file) {
  std::error_code none;
  return std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(file), none);
}

// Whether the file belongs to a checkpoint that is being built beside two others.
bool is_third_checkpoint(int file) {
  namespace fs = std::filesystem;
  std::error_code none;
  const fs::path built = path_of(file).parent_path();
  if (built.extension() != ".tmp" || built.parent_path().filename() != "checkpoints") return false;
  int others = 0;
  for (const auto& entry : fs::directory_iterator(built.parent_path(), none))
    others += entry.is_directory() && entry.path() != built ? 1 : 0;
  return others >= 2;
}

void change_a_name() {
  static std::atomic<int> changes{0};
  const char* const last = std::getenv("DRIVE_KILL_AT");
  if (last != nullptr && ++changes == std::atoi(last)) ::raise(SIGKILL);
}

}  // namespace

extern "C" {

int rename(const char* from, const char* to) {
  static const auto real = next_of<int (*)(const char*, const char*)>("rename");
  change_a_name();
  return real(from, to);
}

int unlink(const char* path) {
  static const auto real = next_of<int (*)(const char*)>("unlink");
  change_a_name();
  return real(path);
}

int remove(const char* path) {
  static const auto real = next_of<int (*)(const char*)>("remove");
  change_a_name();
  return real(path);
}

ssize_t pwrite64(int file, const void* data, size_t bytes, off64_t offset) {
  static const auto real = next_of<decltype(&pwrite64)>("pwrite64");
  const bool quota = fault_is("quota") && is_third_checkpoint(file);
  const bool full = fault_is("weights") && path_of(file).filename() == "model.safetensors.tmp";
  if (!quota && !full) return real(file, data, bytes, offset);
  errno = quota ? EDQUOT : ENOSPC;
  return -1;
}

ssize_t pwrite(int file, const void* data, size_t bytes, off_t offset) {
  return pwrite64(file, data, bytes, offset);
}

int io_getevents(io_context_t context, long least, long most, io_event* events, timespec* limit) {
  static std::atomic<int> requests{0};
  static const auto real = next_of<decltype(&io_getevents)>("io_getevents");
  const int count = real(context, least, most, events, limit);
  for (int i = 0; i < count; ++i) {
    const bool late = ++requests > kHealthyRequests;
    if (late && fault_is("eio")) events[i].res = failed(EIO);
    if (late && fault_is("enospc")) events[i].res = failed(ENOSPC);
    if (fault_is("short") && static_cast<long>(events[i].res) > 0)
      events[i].res = std::min(events[i].res, kBlock);
  }
  return count;
}

int posix_fallocate(int file, off_t offset, off_t bytes) {
  static const auto real = next_of<decltype(&posix_fallocate)>("posix_fallocate");
  return fault_is("full") ? ENOSPC : real(file, offset, bytes);
}

int statvfs(const char* path, struct statvfs* found) {
  static const auto real = next_of<int (*)(const char*, struct statvfs*)>("statvfs");
  const int status = real(path, found);
  if (status == 0 && fault_is("small")) found->f_bavail = 1;
  return status;
}

}  // extern "C"
