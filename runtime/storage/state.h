// The register of mutable state: all values that training changes, by name, each with its global shape and the
// slice that this rank holds. Weight files and checkpoints read and write through this register alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/devices/device.h"
#include "runtime/core/tensor.h"

namespace dstrain {

// One entry of the register: the slice of a tensor that this rank holds. It consists of elements [begin,
// begin + local.elements()) of `name`/`slot`, row-major.
struct StateEntry {
  std::string name = {};  // parameter name, or "trainer" for scalars
  std::string slot = {};  // "master", "exp_avg", "exp_avg_sq", "momentum", or a scalar's name
  Shape global_shape = {};
  DType dtype = DType::f32;
  int64_t begin = 0;
  Tensor local = {};               // one-dimensional view of the live bytes
  bool owner = true;               // this rank writes the slice to files; false for replicas
  RemoteMemory* device = nullptr;  // that has the memory of `local`; null: the host
};

using StateRegister = std::vector<StateEntry>;

}  // namespace dstrain
