// DeviceState: a copy of the step state on the device, at an address that never changes. On the CPU kernels
// read the caller's step state.
#pragma once

#include <cstddef>

#include "runtime/core/step_state.h"
#include "runtime/engine/step/backend.h"

namespace dstrain {

class DeviceState {
 public:
  // `changes`: how often set_first_sample() is called between two uploads, at most.
  DeviceState(const Backend& backend, int64_t changes) : backend_(backend) {
    if (backend.device->is_host()) return;
    changed_ = backend.device->pinned(changes * static_cast<int64_t>(sizeof(int64_t)),
                                      "numbers of first samples");
    there_ = backend.device->allocate(sizeof(StepState), "the step state");
    here_ = backend.device->pinned(sizeof(StepState), "the step state");
  }

  // Returns the address at which kernels read and write `state`.
  StepState* address(StepState* state) const {
    return there_.data() ? reinterpret_cast<StepState*>(there_.data()) : state;
  }
  // Later work of the compute stream sees `state`. The caller must have synchronized the stream since the last
  // upload.
  void upload(const StepState& state) {
    changes_ = 0;
    if (!there_.data()) return;
    *reinterpret_cast<StepState*>(here_.data()) = state;
    backend_.compute->copy(there_.data(), here_.data(), sizeof(StepState));
  }
  // Later work of the compute stream sees another first sample. Only where there is a copy on the device.
  void set_first_sample(int64_t sample) {
    auto* const from = reinterpret_cast<int64_t*>(changed_.data()) + changes_++;
    *from = sample;
    backend_.compute->copy(there_.data() + offsetof(StepState, first_sample), from, sizeof(sample));
  }
  // Waits for the compute stream and copies the step state that its kernels wrote to `state`.
  void download(StepState& state) {
    if (there_.data()) backend_.compute->copy(here_.data(), there_.data(), sizeof(StepState));
    backend_.compute->synchronize();
    if (there_.data()) state = *reinterpret_cast<const StepState*>(here_.data());
  }

 private:
  const Backend& backend_;
  Memory there_, here_;
  Memory changed_;  // what set_first_sample() was given since the last upload
  int64_t changes_ = 0;
};

}  // namespace dstrain
