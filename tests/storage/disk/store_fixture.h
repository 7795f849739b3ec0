// StoreFixture: a disk store over temporary directories, and memory with a known pattern.
#pragma once

#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/memory.h"
#include "runtime/core/philox.h"
#include "runtime/storage/disk/disk_store.h"
#include "tests/storage/disk/fake_io.h"
#include "tests/support/temp_dir.h"

namespace dstrain {

struct StoreFixture {
  // `drives` directories stand for as many drives.
  StoreFixture(std::vector<DiskExtent> extents, const AioConfig& config, int drives = 1)
      : extents_(std::move(extents)), config_(config), drives_(drives) {}

  // Makes the store; the test sets `calls` up before.
  DiskStore& open(std::chrono::nanoseconds limit = std::chrono::seconds(60)) {
    std::vector<std::string> directories;
    for (int i = 0; i < drives_; ++i) directories.push_back(dir / std::to_string(i));
    files = std::make_unique<SwapFiles>(
        directories, DiskStore::bytes_of_each_file(extents_, drives_, config_), calls);
    store = std::make_unique<DiskStore>(*files, extents_, config_, limit);
    return *store;
  }

  TempDir dir;
  FakeIo calls;
  std::unique_ptr<SwapFiles> files;
  std::unique_ptr<DiskStore> store;

 private:
  std::vector<DiskExtent> extents_;
  AioConfig config_;
  int drives_;
};

// Memory of exactly `bytes`, `shift` bytes behind a multiple of kDiskBlock, with 64 bytes behind it that must stay.
class Bytes {
 public:
  explicit Bytes(int64_t bytes, int64_t shift = 0)
      : memory_(Memory::anonymous(bytes + shift + kGuard, "a test")), bytes_(bytes), shift_(shift) {
    std::memset(data() + bytes, 0x5a, kGuard);
  }

  std::byte* data() const { return memory_.data() + shift_; }
  int64_t size() const { return bytes_; }
  // Fills the memory with a pattern of the seed.
  Bytes& fill(uint64_t seed) {
    for (int64_t i = 0; i < bytes_; ++i)
      data()[i] = static_cast<std::byte>(mix64(seed * 1'000'003 + static_cast<uint64_t>(i)));
    return *this;
  }
  bool equals(const Bytes& other, int64_t offset = 0) const {
    return std::memcmp(data(), other.data() + offset, static_cast<size_t>(bytes_)) == 0;
  }
  bool guard_is_whole() const {
    for (int64_t i = 0; i < kGuard; ++i)
      if (data()[bytes_ + i] != std::byte{0x5a}) return false;
    return true;
  }

 private:
  static constexpr int64_t kGuard = 64;
  Memory memory_;
  int64_t bytes_, shift_;
};

}  // namespace dstrain
