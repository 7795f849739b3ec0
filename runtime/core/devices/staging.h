// Staging: two pinned buffers of the host and a stream, through which values pass between a device and the host in
// pieces: the next piece is copied while the host works on one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/core/memory.h"

namespace dstrain {

class Device;
class Event;
class Stream;

class Staging {
 public:
  static constexpr int64_t kBytes = int64_t{8} << 20;  // of a buffer

  // Throws RunError if the device refuses the memory.
  explicit Staging(Device& device);
  ~Staging();

  std::byte* buffer(int64_t piece) const { return buffers_[slot(piece)].data(); }
  // Starts to copy between the buffer of a piece and the device, behind all copies before.
  void download(int64_t piece, const void* from, int64_t bytes);
  void upload(int64_t piece, void* to, int64_t bytes);
  // Waits for the newest copy of the buffer of a piece.
  void wait(int64_t piece);
  // Waits for all copies.
  void synchronize();

 private:
  static size_t slot(int64_t piece) { return static_cast<size_t>(piece % 2); }
  std::array<Memory, 2> buffers_;
  std::unique_ptr<Stream> stream_;
  std::array<std::unique_ptr<Event>, 2> copied_;
};

// The stagings of a device: as many as are used at the same time. Any thread that is attached to the device may use it.
class StagingPool {
 public:
  // Returns a staging to the pool, after its copies, when it is destroyed.
  class Lease {
   public:
    Lease(StagingPool& pool, std::unique_ptr<Staging> staging);
    Lease(Lease&&) = default;
    ~Lease();
    Staging* operator->() const { return staging_.get(); }

   private:
    StagingPool* pool_;
    std::unique_ptr<Staging> staging_;
  };

  StagingPool();
  ~StagingPool();
  Lease lease(Device& device);

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Staging>> free_;
};

}  // namespace dstrain
