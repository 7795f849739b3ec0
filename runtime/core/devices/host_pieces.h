// The host's access to memory of another owner, a piece at a time.
#pragma once

#include <algorithm>

#include "runtime/core/devices/device.h"
#include "runtime/core/devices/staging.h"

namespace dstrain {

// What the host does with values: it reads them, overwrites all of them, or reads and changes them.
enum class HostAccess { read, write, read_write };

// Calls take(offset, data, n) for pieces of at most `piece` bytes of [at, at + bytes), in order: `data` is a copy of
// bytes [offset, offset + n) on the host, and what `take` writes there goes back, as `access` says. The memory of a
// device passes through two pinned buffers of at most Staging::kBytes, so that copies run beside `take`; memory of
// another owner is copied in between. Complete on return. The caller must have waited for what uses the memory.
template <class Take>
void for_host_pieces(RemoteMemory& owner, void* at, int64_t bytes, int64_t piece, HostAccess access,
                     Take&& take) {
  piece = std::min(piece, Staging::kBytes);
  const bool reads = access != HostAccess::write, writes = access != HostAccess::read;
  const auto there = [&](int64_t i) { return static_cast<std::byte*>(at) + i * piece; };
  const auto size = [&](int64_t i) { return std::min(piece, bytes - i * piece); };
  const int64_t count = (bytes + piece - 1) / piece;
  if (count == 0) return;
  Device* const device = owner.device();
  if (!device) {
    const auto buffer = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(size(0)));
    for (int64_t i = 0; i < count; ++i) {
      if (reads) owner.download(buffer.get(), there(i), size(i));
      take(i * piece, buffer.get(), size(i));
      if (writes) owner.upload(there(i), buffer.get(), size(i));
    }
    return;
  }
  device->attach_thread();  // the caller may be a thread of a pool
  const StagingPool::Lease staging = device->staging();
  if (reads) staging->download(0, there(0), size(0));
  for (int64_t i = 0; i < count; ++i) {
    // Behind the upload of the piece before, which is of the same buffer.
    if (reads && i + 1 < count) staging->download(i + 1, there(i + 1), size(i + 1));
    staging->wait(i);  // until its values are there, or its buffer is free
    take(i * piece, staging->buffer(i), size(i));
    if (writes) staging->upload(i, there(i), size(i));
  }
  staging->synchronize();
}

}  // namespace dstrain
