// Arenas: a rank's memory on its device and the host, allocated once before the first step. It has the regions in which
// plans place buffers, and turns a plan's addresses into pointers.
#pragma once

#include <array>
#include <future>

#include "runtime/comm/communicator.h"
#include "runtime/core/devices/host_pieces.h"
#include "runtime/engine/disk/disk_arena.h"
#include "runtime/plan/plan.h"

namespace dstrain {

class Arenas {
 public:
  // Allocates the regions of `table` on `device`, zero-filled. Collective over `comm`, which owns the registered region.
  // `threads`: those that make pages present. `pin`: whether the host's region is pinned for the device's copies. Throws
  // RunError if there is too little memory.
  Arenas(const MemoryTable& table, Device& device, Communicator& comm, int threads,
         bool pin = true);

  // Begins to make the pages of all regions present, while the caller goes on and may use them: once the weights are there,
  // whose reading would share processors and memory with it.
  void begin_populating();

  // Waits until they are. A step that runs before waits for the kernel wherever it is the first to use a page. Throws
  // RunError if there is too little memory.
  void wait_until_present() {
    if (present_.valid()) present_.get();
  }

  // Returns the tensor of a buffer of `plan`; of a buffer with a copy per micro-batch, copy `micro`.
  Tensor tensor(const Plan& plan, BufferId id, int micro = 0) const;
  std::byte* at(const Address& address) const {
    return regions_[static_cast<size_t>(address.region)].data() + address.offset;
  }
  // Returns the bytes of memory that are reserved.
  int64_t reserved_bytes() const;
  Device& device() const { return device_; }

  // Writes the values that the plan's program has itself (ProgramConstant).
  void write_constants(const Plan& plan) const;
  // Creates the files of the tensors on disk, if `plan` has any. Throws UserError if it cannot.
  void open_disk(const Plan& plan, const Job& job);
  DiskArena& disk() const { return *disk_; }

  // Returns the owner of a buffer's memory, by which the host reaches it; null: it is the host's.
  RemoteMemory* owner_of(const Plan& plan, BufferId id) const {
    const Space space = plan.program.space_of(id);
    if (space == Space::disk) return disk_.get();
    return device_.is_host() || space == Space::host ? nullptr : &device_;
  }

 private:
  Device& device_;
  const int threads_;
  std::array<Memory, kRegions> regions_;
  std::shared_ptr<void> pinned_;  // the host's region
  std::unique_ptr<DiskArena> disk_;
  std::future<void> present_;  // the last member: its thread ends before the regions do
};

// Gives the host access to a tensor in the memory of `owner` (null: the host's): calls `take(first element, values)`
// for one piece after the other (for_host_pieces); once and without a copy if the device's memory is the host's.
// `access`: what `take` does with the values. The caller must have synchronized the streams that use the tensor.
template <class Take>
void on_host(RemoteMemory* owner, const Tensor& t, HostAccess access, Take&& take) {
  if (owner == nullptr) return take(int64_t{0}, t);
  const int64_t element = size_of(t.dtype);
  for_host_pieces(*owner, t.data, t.bytes(), Staging::kBytes, access,
                  [&](int64_t offset, std::byte* data, int64_t bytes) {
                    take(offset / element, Tensor{data, {bytes / element}, t.dtype});
                  });
}
template <class Take>
void on_host(Device& device, const Tensor& t, HostAccess access, Take&& take) {
  on_host(device.is_host() ? nullptr : &device, t, access, std::forward<Take>(take));
}

// Returns the first element of a tensor of a device.
template <class T>
T first_value(Device& device, const Tensor& t) {
  T value;
  device.download(&value, t.data, sizeof value);
  return value;
}

}  // namespace dstrain
