// Memory: the owner of large blocks: page-aligned, zero-filled, reserved before the first step. Anonymous
// memory uses huge pages where the system has them. Shared memory is a memfd that other processes open
// through /proc/PID/fd/N, so that a crash leaves nothing in a file system.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace dstrain {

class Memory {
 public:
  Memory() = default;
  // Reserves private zero pages, `bytes` rounded up to a page. Throws RunError, which names `what`.
  static Memory anonymous(int64_t bytes, const std::string& what);
  // Reserves addresses without memory, that name places elsewhere. Nothing can be read or written there.
  static Memory addresses(int64_t bytes, const std::string& what);
  // Creates a memfd that other processes can map with open_peer. Throws RunError, which names `what`.
  static Memory shared(int64_t bytes, const std::string& what);
  // Maps the first `bytes` of the memfd `fd` of process `pid`, which must be of the same user. Throws
  // RunError if the operating system refuses, or if the memfd is smaller.
  static Memory open_peer(int64_t pid, int fd, int64_t bytes);

  // Takes over `bytes` that a device or a library reserved; the deleter of `data` releases them.
  static Memory adopt(std::shared_ptr<std::byte> data, int64_t bytes);

  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(fd_, other.fd_);
    std::swap(adopted_, other.adopted_);
    std::swap(watched_, other.watched_);
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  // Uses pages of the smallest size from now on, so that untouched parts take no memory.
  void use_small_pages() const;

  // Makes every page present now, with `threads` threads, so that later uses do not wait for the kernel, and
  // a lack of memory is found here. Contents stay. Throws RunError, which names `what`.
  void populate(int threads, const std::string& what) const;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  int fd() const { return fd_; }  // of shared(); -1 for all others
  // Returns a pointer that expires when these bytes are released, for caches of addresses.
  std::weak_ptr<const void> watch();

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  int fd_ = -1;
  std::shared_ptr<std::byte> adopted_;  // empty: pages that this object unmaps
  std::shared_ptr<const void> watched_;
};

}  // namespace dstrain
