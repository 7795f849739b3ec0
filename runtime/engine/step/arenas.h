// Arenas: a rank's memory on its device, reserved once before the first step from the plan's table.
// Everything the plans place lies in one of three regions; an Address becomes a pointer here and
// nowhere else.
#pragma once

#include <array>

#include "runtime/comm/communicator.h"
#include "runtime/core/devices/device.h"
#include "runtime/plan/plan.h"

namespace dstrain {

class Arenas {
 public:
  // Reserves what `table` says on `device` and makes it present, with `threads` threads; collective
  // over `comm`, which owns the registered region. Throws RunError where the device does not have it.
  Arenas(const MemoryTable& table, Device& device, Communicator& comm, int threads);

  // The tensor of a buffer of `plan`; of its copy `micro` where it has one per micro-batch.
  Tensor tensor(const Plan& plan, BufferId id, int micro = 0) const;
  std::byte* at(const Address& address) const {
    return regions_[static_cast<size_t>(address.region)].data() + address.offset;
  }
  int64_t reserved_bytes() const;
  Device& device() const { return device_; }

 private:
  Device& device_;
  std::array<Memory, kRegions> regions_;
};

// The values of a tensor of a device for the host to read (and, with `write`, to change): hands them
// to `take(first element, values)` a piece at a time, through one bounded buffer; all at once and in
// place where the host reads the device's memory itself. The streams that use the tensor have been
// synchronized.
enum class HostAccess { read, write, read_write };

template <class Take>
void on_host(Device& device, const Tensor& t, HostAccess access, Take&& take) {
  constexpr int64_t kPieceBytes = int64_t{8} << 20;
  if (device.is_host()) return take(int64_t{0}, t);
  const int64_t element = size_of(t.dtype), n = t.elements();
  const int64_t piece = std::min(n, kPieceBytes / element);
  const auto buffer =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(piece * element));
  for (int64_t first = 0; first < n; first += piece) {
    const int64_t count = std::min(piece, n - first);
    auto* const there = t.as<std::byte>() + first * element;
    if (access != HostAccess::write) device.download(buffer.get(), there, count * element);
    take(first, Tensor{buffer.get(), {count}, t.dtype});
    if (access != HostAccess::read) device.upload(there, buffer.get(), count * element);
  }
}

// The first element of a tensor of a device.
template <class T>
T first_value(Device& device, const Tensor& t) {
  T value;
  device.download(&value, t.data, sizeof value);
  return value;
}

}  // namespace dstrain
