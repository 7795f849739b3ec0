#include "runtime/engine/disk/disk_arena.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <memory>

#include "runtime/core/error.h"

namespace dstrain {

DiskArena::DiskArena(const Plan& plan, const Job& job, const std::byte* base) : base_(base) {
  const Program& program = plan.program;
  std::vector<BufferId> tensors;
  int64_t end = 0;  // of what lives for a part of a step, in memory that several tensors use
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& b = program.buffers[i];
    // A tensor without elements has the address of another one, and nothing is read or written there.
    if (b.parent != kNone || b.space != Space::disk || b.bytes() == 0) continue;
    const Address& a = plan.address[i];
    if (b.lifetime == Lifetime::persistent)
      tensors.push_back(static_cast<BufferId>(i));
    else
      end = std::max(end, disk_blocks_up(a.offset_of(a.copies - 1) + b.bytes()));
  }
  const auto offset = [&plan](BufferId id) { return plan.address[static_cast<size_t>(id)].offset; };
  std::ranges::sort(tensors, {}, offset);
  std::vector<DiskExtent> extents;
  for (const BufferId id : tensors) {
    extents.push_back({program.at(id).name, program.at(id).bytes()});
    begins_.push_back(offset(id));
  }
  const int64_t passing =
      extents.empty() ? 0 : begins_.back() + disk_blocks_up(extents.back().bytes);
  if (end > passing) {
    extents.push_back({"activations", end - passing});
    begins_.push_back(passing);
    passing_ = static_cast<int>(extents.size()) - 1;
  }
  const auto& paths = job.offload.nvme_paths;
  const auto drives = static_cast<int>(paths.size());
  files_.emplace(paths, DiskStore::bytes_of_each_file(extents, drives, job.aio), calls_);
  store_.emplace(*files_, std::move(extents), job.aio, std::chrono::seconds(job.timeout_s));
}

DiskArena::ExtentPosition DiskArena::position_of(const void* address, int64_t bytes) const {
  if (bytes == 0) return {};
  const int64_t at = static_cast<const std::byte*>(address) - base_;
  const auto after = std::ranges::upper_bound(begins_, at);
  check(after != begins_.begin(), "an address that is not on disk");
  const ExtentPosition position{static_cast<int>(after - begins_.begin()) - 1,
                                at - *std::prev(after)};
  check(position.offset + bytes <= store_->bytes(position.extent),
        "{} bytes at {} on disk are not all in one tensor", bytes, at);
  return position;
}

DiskStore::Ticket DiskArena::read(const Tensor& from, const Tensor& to) {
  const auto [extent, offset] = position_of(from.data, to.bytes());
  return store_->read(extent, offset, to.as<std::byte>(), to.bytes());
}

DiskStore::Ticket DiskArena::write(const Tensor& from, const Tensor& to) {
  const auto [extent, offset] = position_of(to.data, from.bytes());
  // Tensors that share an extent have whole blocks of it, and so have those that pass the host's memory.
  const int64_t bytes = extent == passing_ ? disk_blocks_up(from.bytes()) : from.bytes();
  return store_->write(extent, offset, from.as<const std::byte>(), bytes);
}

void DiskArena::download(void* host, const void* from, int64_t bytes) {
  const auto [extent, offset] = position_of(from, bytes);
  store_->read(extent, offset, static_cast<std::byte*>(host), bytes).wait();
}

void DiskArena::upload(void* to, const void* host, int64_t bytes) {
  const auto [extent, offset] = position_of(to, bytes);
  const int64_t end = offset + bytes, whole = store_->bytes(extent);
  const int64_t first = offset / kDiskBlock * kDiskBlock;
  const int64_t last = std::min(disk_blocks_up(end), whole);
  const auto* const source = static_cast<const std::byte*>(host);
  if (first == offset && last == end) return store_->write(extent, offset, source, bytes).wait();
  // The drive writes whole blocks: those at the ends keep their other bytes.
  const auto blocks =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(last - first));
  const auto keep = [&, extent = extent](int64_t begin) {
    const int64_t length = std::min(kDiskBlock, last - begin);
    store_->read(extent, begin, blocks.get() + (begin - first), length).wait();
  };
  keep(first);
  if (const int64_t tail = (last - 1) / kDiskBlock * kDiskBlock; tail > first) keep(tail);
  std::memcpy(blocks.get() + (offset - first), source, static_cast<size_t>(bytes));
  store_->write(extent, first, blocks.get(), last - first).wait();
}

}  // namespace dstrain
