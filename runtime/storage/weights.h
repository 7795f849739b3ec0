// Weight files: named fp32 tensors in a safetensors file, the form in which models come and go.
// Stands on safetensors.h and the state register. A file is complete or not there; a reader touches
// the bytes of its own slices only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/storage/atomic_file.h"
#include "runtime/storage/safetensors.h"
#include "runtime/storage/state.h"

namespace dstrain {

// Fills every slice of `want` (local: f32) from the file's tensor of that name: F32, and F16 and BF16
// widened. Slots are not looked at. Throws one UserError that lists every missing, superfluous and
// wrongly shaped tensor.
void load_weights(const std::string& path, const StateRegister& want);

// The checks of load_weights alone; `want` needs no local tensors. For the launching process.
void check_weights(const std::string& path, const StateRegister& want);

// Writes a weight file slice by slice, in any order; names and shapes are known beforehand.
class WeightsWriter {
 public:
  // Tensors by the names and global shapes of `tensors`, whose locals are not looked at.
  WeightsWriter(const std::string& path, const StateRegister& tensors);

  // Elements [begin, begin + values.elements()) of the tensor `name`; values: f32. Throws RunError
  // where the disk refuses.
  void write(std::string_view name, int64_t begin, const Tensor& values);

  // Puts the file in place; every element must have been written. Without it nothing remains.
  void finish();

 private:
  struct Slot {
    int64_t elements = 0, written = 0;
  };
  NewFile file_;
  SafetensorsHeader header_;
  std::vector<Slot> slots_;  // as header_.tensors
};

}  // namespace dstrain
