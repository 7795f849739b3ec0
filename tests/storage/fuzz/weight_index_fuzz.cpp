// Reads any bytes as an index of weights, which gives a UserError or files beside it.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "runtime/core/error.h"
#include "runtime/storage/weights/weight_files.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace dstrain;
  try {
    for (const auto& [file, tensors] :
         parse_weight_index({reinterpret_cast<const char*>(data), size}, "fuzz"))
      check(!tensors.empty() && file.find('/') == std::string::npos && file != "..",
            "a file that is not beside the index");
  } catch (const UserError&) {
    return 0;  // refused, as it should be
  }
  return 0;
}
