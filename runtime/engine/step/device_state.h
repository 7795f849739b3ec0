// DeviceState: the step state where kernels read it, at an address that never changes. On the CPU that
// is the caller's own.
#pragma once

#include "runtime/core/step_state.h"
#include "runtime/engine/step/backend.h"

namespace dstrain {

class DeviceState {
 public:
  explicit DeviceState(const Backend& backend) : backend_(backend) {
    if (backend.device->is_host()) return;
    there_ = backend.device->allocate(sizeof(StepState), "the step state");
    here_ = backend.device->pinned(sizeof(StepState), "the step state");
  }

  // Where kernels find what the caller has in `state`.
  StepState* address(StepState* state) const {
    return there_.data() ? reinterpret_cast<StepState*>(there_.data()) : state;
  }
  // Work given to the compute stream from now on sees `state`. The stream has been synchronized since
  // the last upload.
  void upload(const StepState& state) {
    if (!there_.data()) return;
    *reinterpret_cast<StepState*>(here_.data()) = state;
    backend_.compute->copy(there_.data(), here_.data(), sizeof(StepState));
  }
  // Waits for the compute stream; `state` is then what its kernels left.
  void download(StepState& state) {
    if (there_.data()) backend_.compute->copy(here_.data(), there_.data(), sizeof(StepState));
    backend_.compute->synchronize();
    if (there_.data()) state = *reinterpret_cast<const StepState*>(here_.data());
  }

 private:
  const Backend& backend_;
  Memory there_, here_;
};

}  // namespace dstrain
