// Memory: the only owner of bulk bytes. Page-aligned, zero-filled, reserved at start-up; nothing
// inside a step allocates. Anonymous memory asks for huge pages; shared memory is a memfd that
// peers open through /proc/PID/fd/N, so nothing is left in a file system after a crash.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

namespace dstrain {

class Memory {
 public:
  Memory() = default;
  // Reserves `bytes` (rounded up to a page) of private zero pages. Throws RunError naming `what`.
  static Memory anonymous(int64_t bytes, const std::string& what);
  // A new memfd that other processes can map with open_peer.
  static Memory shared(int64_t bytes, const std::string& what);
  // Maps the first `bytes` of the memfd `fd` of process `pid` (this user's). Throws RunError where
  // the operating system refuses, or where the memfd is smaller than `bytes`.
  static Memory open_peer(int64_t pid, int fd, int64_t bytes);

  // Owns `bytes` at `data`, which a device or a library reserved and `release` gives back.
  static Memory adopt(std::byte* data, int64_t bytes, std::function<void()> release);

  Memory(Memory&& other) noexcept { *this = std::move(other); }
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(fd_, other.fd_);
    std::swap(life_, other.life_);
    std::swap(release_, other.release_);
    return *this;
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  // From here on pages are of the smallest size, so that what is never touched costs nothing. For memory of
  // which little is used.
  void use_small_pages() const;

  // Makes every page present now, with `threads` threads, so that no first use waits for the kernel
  // and a machine without the memory says so here. Contents stay. Throws RunError naming `what`.
  void populate(int threads, const std::string& what) const;

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  int fd() const { return fd_; }  // -1 for anonymous and for peers' memory
  // Expires when these bytes are released, so that a register of addresses knows which are stale.
  std::weak_ptr<const void> watch();

 private:
  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
  int fd_ = -1;
  std::shared_ptr<const void> life_;
  std::function<void()> release_;  // empty: pages of our own
};

}  // namespace dstrain
