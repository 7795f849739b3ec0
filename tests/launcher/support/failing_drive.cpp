// A library that a test puts in front of a program's system calls (LD_PRELOAD), to let its drives fail. DRIVE_FAULT says
// how: `eio` and `enospc`: from the 30th one on, requests fail; `short`: every request of several blocks ends after one;
// `full`: no blocks can be reserved; `small`: file systems say that one block is free.
#include <dlfcn.h>
#include <libaio.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <string_view>

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

}  // namespace

extern "C" {

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
