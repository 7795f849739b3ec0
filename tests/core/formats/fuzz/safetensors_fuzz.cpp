// Reads any bytes as a safetensors file, which gives a UserError or a header that covers them exactly.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/core/error.h"
#include "runtime/core/formats/safetensors.h"

namespace {

using namespace dstrain;

// Parses, checks and rewrites the header. Throws UserError if the bytes are not a safetensors file.
void read_back(std::string_view bytes) {
  const auto size = static_cast<int64_t>(bytes.size());
  const int64_t json = safetensors_header_bytes(bytes.substr(0, 8), size, "fuzz");
  SafetensorsHeader header =
      parse_safetensors(bytes.substr(8, static_cast<size_t>(json)), size, "fuzz");
  int64_t at = 8 + json;
  for (const SafetensorsTensor& t : header.tensors) {
    int64_t n = t.type.bytes;
    for (const int64_t dim : t.shape) n *= dim;
    check(t.begin == at && t.end - t.begin == n, "a tensor that is not at its place");
    check(header.find(t.name) == &t, "a tensor that is not found by its name");
    at = t.end;
  }
  check(at == size, "bytes that belong to no tensor");

  const std::string made = make_safetensors_header(header.tensors);
  const auto made_size = static_cast<int64_t>(made.size()) + size - 8 - json;
  const SafetensorsHeader again =
      parse_safetensors(std::string_view(made).substr(8), made_size, "made");
  check(again.tensors.size() == header.tensors.size(), "a tensor that was lost");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    read_back({reinterpret_cast<const char*>(data), size});
  } catch (const UserError&) {
    return 0;  // refused, as it should be
  }
  return 0;
}
