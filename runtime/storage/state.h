// The register of mutable state. Everything that training changes is registered once, by name, with
// its global shape and the slice of it that this rank holds. Weight files, checkpoints, checksums and
// memory tables read this register and nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/devices/device.h"
#include "runtime/core/tensor.h"

namespace dstrain {

// Elements [begin, begin + local.elements()) of the row-major tensor `name`/`slot`.
struct StateEntry {
  std::string name = {};  // parameter name, or "trainer" for scalars
  std::string slot = {};  // "master", "exp_avg", "exp_avg_sq", "momentum", or a scalar's name
  Shape global_shape = {};
  DType dtype = DType::f32;
  int64_t begin = 0;
  Tensor local = {};  // one-dimensional view of the live bytes
  bool owner = true;  // this rank writes the slice (replicas hold it, the first of them writes)
  Device* device = nullptr;  // whose memory `local` is; null: the host's
};

using StateRegister = std::vector<StateEntry>;

}  // namespace dstrain
