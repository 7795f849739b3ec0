#include "runtime/storage/disk/disk_layout.h"

#include "runtime/core/error.h"

namespace dstrain {

DiskLayout::DiskLayout(std::span<const DiskExtent> extents, int files, int64_t stripe)
    : files_(files), stripe_(stripe) {
  check(files > 0 && stripe > 0 && stripe % kDiskBlock == 0, "{} files with stripes of {} bytes",
        files, stripe);
  for (const DiskExtent& extent : extents) {
    check(extent.bytes >= 0, "extent {} has {} bytes", extent.name, extent.bytes);
    begins_.push_back(end_);
    end_ += disk_blocks_up(extent.bytes);
  }
}

DiskPlace DiskLayout::place(int64_t address) const {
  const int64_t piece = address / stripe_;
  return {static_cast<int>(piece % files_), piece / files_ * stripe_ + address % stripe_};
}

int64_t DiskLayout::together(int64_t address) const {
  return files_ == 1 ? end_ - address : stripe_ - address % stripe_;
}

int64_t DiskLayout::bytes_of_each_file() const {
  if (files_ == 1) return end_;
  const int64_t pieces = (end_ + stripe_ - 1) / stripe_;
  return (pieces + files_ - 1) / files_ * stripe_;
}

}  // namespace dstrain
