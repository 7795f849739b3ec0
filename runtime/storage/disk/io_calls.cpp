#include "runtime/storage/disk/io_calls.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <ctime>

#include "runtime/storage/disk/free_space.h"

namespace dstrain {

std::optional<int64_t> IoCalls::free_bytes(const std::string& directory) {
  return dstrain::free_bytes(directory);
}

int IoCalls::create_unnamed(const std::string& directory) {
  const int file = ::open(directory.c_str(), O_RDWR | O_TMPFILE | O_CLOEXEC, 0600);
  return file < 0 ? -errno : file;
}

int IoCalls::create(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  return file < 0 ? -errno : file;
}

int IoCalls::reserve(int file, int64_t bytes) {
  int status = EINTR;
  while (status == EINTR) status = ::posix_fallocate(file, 0, bytes);
  return -status;
}

int IoCalls::set_direct(int file, bool direct) {
  const int flags = ::fcntl(file, F_GETFL);
  if (flags < 0) return -errno;
  return ::fcntl(file, F_SETFL, direct ? flags | O_DIRECT : flags & ~O_DIRECT) < 0 ? -errno : 0;
}

int64_t IoCalls::read(int file, std::span<std::byte> block) {
  const ssize_t bytes = ::pread(file, block.data(), block.size(), 0);
  return bytes < 0 ? -errno : bytes;
}

int64_t IoCalls::size(int file) {
  struct stat status {};
  return ::fstat(file, &status) != 0 ? -errno : status.st_size;
}

int IoCalls::setup(int most_in_flight, io_context_t* context) {
  return ::io_setup(most_in_flight, context);
}

int IoCalls::submit(io_context_t context, std::span<iocb*> requests) {
  return ::io_submit(context, static_cast<long>(requests.size()), requests.data());
}

int IoCalls::completions(io_context_t context, int least, std::span<io_event> events,
                         std::chrono::nanoseconds time) {
  constexpr int64_t second = 1'000'000'000;
  timespec limit{.tv_sec = time.count() / second, .tv_nsec = time.count() % second};
  return ::io_getevents(context, least, static_cast<long>(events.size()), events.data(), &limit);
}

int IoCalls::destroy(io_context_t context) {
  return ::io_destroy(context);
}

}  // namespace dstrain
