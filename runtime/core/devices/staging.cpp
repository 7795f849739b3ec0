#include "runtime/core/devices/staging.h"

#include <utility>

#include "runtime/core/devices/device.h"

namespace dstrain {

Staging::Staging(Device& device) : stream_(device.make_stream()) {
  for (Memory& buffer : buffers_) buffer = device.pinned(kBytes, "copies between host and device");
  for (auto& event : copied_) event = device.make_event();
}

Staging::~Staging() = default;

void Staging::download(int64_t piece, const void* from, int64_t bytes) {
  stream_->copy(buffer(piece), from, bytes);
  copied_[slot(piece)]->record(*stream_);
}

void Staging::upload(int64_t piece, void* to, int64_t bytes) {
  stream_->copy(to, buffer(piece), bytes);
  copied_[slot(piece)]->record(*stream_);
}

void Staging::wait(int64_t piece) {
  copied_[slot(piece)]->synchronize();
}

void Staging::synchronize() {
  stream_->synchronize();
}

StagingPool::Lease::Lease(StagingPool& pool, std::unique_ptr<Staging> staging)
    : pool_(&pool), staging_(std::move(staging)) {}

StagingPool::Lease::~Lease() {
  if (!staging_) return;
  try {
    staging_->synchronize();
  } catch (...) {  // who waited for the copies has thrown it; this staging is not used again
    return;
  }
  const std::lock_guard lock(pool_->mutex_);
  pool_->free_.push_back(std::move(staging_));
}

StagingPool::StagingPool() = default;
StagingPool::~StagingPool() = default;

StagingPool::Lease StagingPool::lease(Device& device) {
  {
    const std::lock_guard lock(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<Staging> staging = std::move(free_.back());
      free_.pop_back();
      return {*this, std::move(staging)};
    }
  }
  return {*this, std::make_unique<Staging>(device)};
}

}  // namespace dstrain
