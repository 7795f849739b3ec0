// DiskLayout: where the tensors of a disk store lie in its files. The extents stand one after another in one range of
// addresses, each at a multiple of kDiskBlock. With several files, pieces of `stripe` bytes of that range go to the
// files in turn, so that one large tensor uses all drives. Pure: no file is touched.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace dstrain {

// The alignment of direct input and output: of places in files, in memory, and of sizes. No drive wants more.
inline constexpr int64_t kDiskBlock = 4096;

// Returns `bytes` rounded up to whole disk blocks.
constexpr int64_t disk_blocks_up(int64_t bytes) {
  return (bytes + kDiskBlock - 1) / kDiskBlock * kDiskBlock;
}

// A tensor on disk: its name for messages, and its size, which may be odd.
struct DiskExtent {
  std::string name;
  int64_t bytes = 0;
};

// A place in one of the files.
struct DiskPlace {
  int file = 0;
  int64_t offset = 0;
};

class DiskLayout {
 public:
  // `stripe` is a multiple of kDiskBlock. Sizes must not be negative.
  DiskLayout(std::span<const DiskExtent> extents, int files, int64_t stripe);

  // Returns the address of the first byte of an extent.
  int64_t address(int extent) const { return begins_[static_cast<size_t>(extent)]; }
  // Returns the place of an address.
  DiskPlace place(int64_t address) const;
  // Returns how many bytes from an address on lie together in one file.
  int64_t together(int64_t address) const;
  // Returns the bytes that each file needs.
  int64_t bytes_of_each_file() const;

 private:
  std::vector<int64_t> begins_;
  int64_t files_, stripe_, end_ = 0;
};

}  // namespace dstrain
