// Reads any bytes as a file of arrays, which gives a UserError or arrays that lie in it, and reads every element of those.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/data/arrays/array_shard.h"

namespace {

using namespace dstrain;

void read_all(const ArrayShard& shard) {
  for (const StoredArray& array : shard.arrays) {
    if (!array.type) continue;
    int64_t count = 1;
    for (const int64_t size : array.shape) count *= size;
    const int64_t bytes = count * size_of(*array.type);
    check(array.begin >= 0 && bytes >= 0 && array.begin + bytes <= array.file->bytes(),
          "an array that is not in its file");
    std::vector<float> floats(static_cast<size_t>(count));
    std::vector<int32_t> integers(static_cast<size_t>(count));
    const unsigned char* const from = array.file->data() + array.begin;
    convert_elements(*array.type, from, count, DType::f32, floats.data());
    convert_elements(*array.type, from, count, DType::i32, integers.data());
    if (count > 0) check(!element_text(*array.type, from).empty(), "an element without a text");
    check(shard.find(array.name) != nullptr, "an array that is not found by its name");
  }
  shard.numbered();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const int file = ::memfd_create("arrays", MFD_CLOEXEC);
  if (file < 0 || ::write(file, data, size) != static_cast<ssize_t>(size)) return 0;
  try {
    read_all(open_array_shard("/proc/self/fd/" + std::to_string(file)));
  } catch (const UserError&) {
    // refused, as it should be
  }
  ::close(file);
  return 0;
}
