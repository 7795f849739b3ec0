#include "runtime/core/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>

#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"
#include "runtime/core/threads/parts.h"
#include "runtime/core/whole_pages.h"

namespace dstrain {
namespace {

std::byte* map(int64_t bytes, int flags, int fd, const std::string& what) {
  void* p = ::mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, flags, fd, 0);
  if (p == MAP_FAILED)
    fail_run("cannot reserve {} bytes of memory for {}: {}", bytes, what, std::strerror(errno));
  return static_cast<std::byte*>(p);
}

}  // namespace

Memory Memory::anonymous(int64_t bytes, const std::string& what) {
  Memory m;
  if (bytes <= 0) return m;
  bytes = whole_pages(bytes);
  m.data_ = map(bytes, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, what);
  m.bytes_ = bytes;
  // A request only: without huge pages the memory works, but slower.
  ::madvise(m.data_, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return m;
}

Memory Memory::addresses(int64_t bytes, const std::string& what) {
  Memory m;
  if (bytes <= 0) return m;
  m.bytes_ = whole_pages(bytes);
  void* p = ::mmap(nullptr, static_cast<size_t>(m.bytes_), PROT_NONE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED)
    fail_run("cannot reserve {} addresses for {}: {}", bytes, what, std::strerror(errno));
  m.data_ = static_cast<std::byte*>(p);
  return m;
}

Memory Memory::shared(int64_t bytes, const std::string& what) {
  Memory m;
  if (bytes <= 0) return m;
  bytes = whole_pages(bytes);
  m.fd_ = ::memfd_create("dstrain", MFD_CLOEXEC);
  if (m.fd_ < 0 || ::ftruncate(m.fd_, bytes) != 0)
    fail_run("cannot create {} bytes of shared memory for {}: {}", bytes, what,
             system_reason(errno));
  m.data_ = map(bytes, MAP_SHARED, m.fd_, what);
  m.bytes_ = bytes;
  ::madvise(m.data_, static_cast<size_t>(bytes), MADV_HUGEPAGE);
  return m;
}

Memory Memory::open_peer(int64_t pid, int fd, int64_t bytes) {
  Memory m;
  const std::string path = fmt::format("/proc/{}/fd/{}", pid, fd);
  m.fd_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (m.fd_ < 0)
    fail_run("cannot open a peer's shared memory at {}: {}", path, system_reason(errno));
  bytes = whole_pages(bytes);
  struct stat status {};
  if (::fstat(m.fd_, &status) != 0 || status.st_size < bytes)
    fail_run("a peer's shared memory at {} has {} bytes, expected {}", path, status.st_size, bytes);
  m.data_ = map(bytes, MAP_SHARED, m.fd_, path);
  m.bytes_ = bytes;
  ::close(m.fd_);  // the mapping keeps the memory
  m.fd_ = -1;
  return m;
}

Memory Memory::adopt(std::shared_ptr<std::byte> data, int64_t bytes) {
  Memory m;
  m.data_ = data.get();
  m.bytes_ = bytes;
  m.adopted_ = std::move(data);
  return m;
}

void Memory::use_small_pages() const {
  ::madvise(data_, static_cast<size_t>(bytes_), MADV_NOHUGEPAGE);
}

void Memory::populate(int threads, const std::string& what) const {
  constexpr int64_t kChunk = 32 << 20;
  const int64_t chunks = (bytes_ + kChunk - 1) / kChunk;
  std::atomic<int> failure{0};  // errno
  run_in_turns(threads, chunks, [&](int64_t i) {
    const int64_t begin = i * kChunk, end = std::min(bytes_, begin + kChunk);
    // Allocating a file's pages at once is faster than one per page fault. Errors are reported by madvise.
    if (fd_ >= 0) ::fallocate(fd_, 0, begin, end - begin);
    if (::madvise(data_ + begin, static_cast<size_t>(end - begin), MADV_POPULATE_WRITE) == 0)
      return;
    if (errno != EINVAL) {
      failure = errno;
      return;
    }
    // Kernels before 5.14 do not have the call: an atomic addition of 0 writes to each page instead.
    for (int64_t at = begin; at < end; at += 4096)
      std::atomic_ref(reinterpret_cast<char&>(data_[at])).fetch_add(0);
  });
  if (failure != 0)
    fail_run("cannot get {} bytes of memory for {}: {}; use fewer ranks or a smaller model", bytes_,
             what, system_reason(failure));
}

std::weak_ptr<const void> Memory::watch() {
  if (!watched_) watched_ = std::make_shared<char>();
  return watched_;
}

Memory::~Memory() {
  if (data_ && !adopted_) ::munmap(data_, static_cast<size_t>(bytes_));
  if (fd_ >= 0) ::close(fd_);
}

}  // namespace dstrain
