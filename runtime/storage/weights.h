// Weight files: named tensors in a safetensors file (docs/formats.md). A file is written atomically; a rank
// reads only the bytes of its own slices.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "runtime/storage/atomic_file.h"
#include "runtime/storage/safetensors.h"
#include "runtime/storage/state.h"
#include "runtime/storage/weight_layout.h"

namespace dstrain {

// Returns the weights file that `path` names: itself, or model.safetensors in it if it is a directory. Throws UserError
// if it is a directory without that file.
std::string weights_file(const std::string& path);

// Fills every slice of `want` from the file's tensors that have it, which are F32, F16 or BF16: that of its name, or
// its parts (mapped()). Slots are ignored. Throws one UserError that lists all missing and superfluous tensors and all
// wrong shapes.
void load_weights(const std::string& path, const StateRegister& want);

// Does only the checks of load_weights, for the launching process; `want` needs no local tensors.
void check_weights(const std::string& path, const StateRegister& want);

// Writes a weight file slice by slice, in any order.
class WeightsWriter {
 public:
  // The file gets the tensors of `weights`, by their names or parts and global shapes; local tensors are ignored.
  WeightsWriter(const std::string& path, const StateRegister& weights);

  // Writes elements [begin, begin + values.elements()) of the weight `name`; `values` is f32. Throws RunError.
  void write(std::string_view name, int64_t begin, const Tensor& values);

  // Completes the file. The caller must have written every element. Without finish() no file remains.
  void finish();

 private:
  struct Slot {
    size_t index = 0;  // in the layout
    int64_t elements = 0, written = 0;
  };
  NewFile file_;
  WeightLayout layout_;
  std::vector<SafetensorsTensor> tensors_;          // as layout_.tensors()
  std::map<std::string, Slot, std::less<>> slots_;  // of every weight
  std::vector<float> together_;  // a run of elements that are apart in the weight
};

}  // namespace dstrain
