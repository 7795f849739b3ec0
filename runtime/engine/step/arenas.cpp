#include "runtime/engine/step/arenas.h"

#include <cstring>

namespace dstrain {

Arenas::Arenas(const MemoryTable& table, Device& device, Communicator& comm, int threads, bool pin)
    : device_(device), threads_(threads) {
  const auto& bytes = table.region_bytes;
  regions_[static_cast<size_t>(Region::persistent)] =
      device.allocate(bytes[static_cast<size_t>(Region::persistent)], "parameters and their state");
  regions_[static_cast<size_t>(Region::transient)] =
      device.allocate(bytes[static_cast<size_t>(Region::transient)], "activations and workspaces");
  regions_[static_cast<size_t>(Region::registered)] =
      comm.allocate(bytes[static_cast<size_t>(Region::registered)], "gradients that peers read");
  const int64_t host_bytes = table.total(Space::host);
  Memory& host = regions_[static_cast<size_t>(Region::host)];
  host = Memory::anonymous(host_bytes, "offloaded tensors");
  regions_[static_cast<size_t>(Region::disk)] =
      Memory::addresses(table.total(Space::disk), "tensors on disk");
  if (pin && !device.is_host()) {
    host.populate(threads, "offloaded tensors");  // by all threads, where pin() would do so by one
    pinned_ = device.pin(host.data(), host_bytes);
  }
}

void Arenas::begin_populating() {
  present_ = std::async(std::launch::async, [this] {
    for (const Region region : {Region::transient, Region::persistent, Region::registered})
      device_.populate(regions_[static_cast<size_t>(region)], threads_);
    if (!pinned_)
      regions_[static_cast<size_t>(Region::host)].populate(threads_, "offloaded tensors");
  });
}

void Arenas::open_disk(const Plan& plan, const Job& job) {
  const Memory& addresses = regions_[static_cast<size_t>(Region::disk)];
  if (addresses.bytes() > 0) disk_ = std::make_unique<DiskArena>(plan, job, addresses.data());
}

Tensor Arenas::tensor(const Plan& plan, BufferId id, int micro) const {
  const Buffer& buffer = plan.program.at(id);
  Address address = plan.address[static_cast<size_t>(id)];
  address.offset = address.offset_of(micro);
  return {at(address), buffer.shape, buffer.dtype};
}

int64_t Arenas::reserved_bytes() const {
  int64_t total = 0;
  for (const Memory& m : regions_) total += m.bytes();
  return total - regions_[static_cast<size_t>(Region::disk)].bytes();
}

void Arenas::write_constants(const Plan& plan) const {
  for (const ProgramConstant& constant : plan.program.constants) {
    if (constant.buffer == kNone) continue;
    const Tensor whole = tensor(plan, constant.buffer);
    const int64_t size = size_of(whole.dtype);
    on_host(owner_of(plan, constant.buffer), whole, HostAccess::write,
            [&](int64_t first, const Tensor& piece) {
              std::memcpy(piece.data, constant.bytes->data() + first * size,
                          static_cast<size_t>(piece.bytes()));
            });
  }
}

}  // namespace dstrain
