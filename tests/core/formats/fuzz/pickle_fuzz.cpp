// Reads any bytes as a pickle beside a storage of 64 bytes, which gives values or a UserError, and never a crash, a hang or
// another exception. Bytes that begin as a zip archive are the whole file.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "runtime/core/error.h"
#include "runtime/core/formats/torch/torch_file.h"
#include "tests/support/pickle/pickle_text.h"

namespace {

using namespace dstrain;

// Returns a file in a folder that was made for it.
const std::string& file_path() {
  static const std::string path = [] {
    std::string folder = std::filesystem::temp_directory_path() / "dstrain_fuzz_XXXXXX";
    if (!mkdtemp(folder.data())) abort();
    return folder + "/m.pt";
  }();
  return path;
}

// Reads what is a tensor of a value and of those in it.
void read_tensors(const TorchFile& file, PickleValue value, int depth) {
  if (depth == 0) return;
  if (TorchFile::is_tensor(value)) {
    try {
      const TorchTensor tensor = file.tensor(value);
      const InputFile input(file.path(), "the file");
      std::string bytes(static_cast<size_t>(tensor.elements() * tensor.type.bytes), '\0');
      TorchTensorReader(input, tensor).read(0, tensor.elements(), bytes.data());
    } catch (const UserError&) {
      return;  // refused, as it should be
    }
  }
  for (size_t i = 0; i < std::min<size_t>(value.size(), 8); ++i)
    read_tensors(file, value[i], depth - 1);
  for (size_t i = 0; i < std::min<size_t>(value.pairs(), 8); ++i)
    read_tensors(file, value.value(i), depth - 1);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  {
    std::ofstream file(file_path(), std::ios::binary);
    file << (bytes.starts_with("PK") ? bytes : PickleText::file(bytes, {std::string(64, 'x')}));
  }
  try {
    const TorchFile file(file_path());
    read_tensors(file, file.root(), 4);
  } catch (const UserError&) {
    return 0;  // refused, as it should be
  }
  return 0;
}
