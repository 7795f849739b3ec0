// Reads any bytes as an archive of torch.export.save and folds its program, which gives a graph or a UserError, and never a
// crash, a hang or another exception. Bytes that begin with a brace are the program of an archive with a few tensors.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/exported/fold/fold.h"
#include "models/exported/graph/solve_sizes.h"
#include "runtime/core/error.h"
#include "tests/support/zip_file.h"

namespace {

using namespace dstrain;

// Returns a file in a folder that was made for it.
const std::string& archive_path() {
  static const std::string path = [] {
    std::string folder = std::filesystem::temp_directory_path() / "dstrain_fuzz_XXXXXX";
    if (!mkdtemp(folder.data())) abort();
    return folder + "/m.pt2";
  }();
  return path;
}

// Returns an archive of a program whose constants have the names a, b and c.
std::string archive_of(std::string_view program) {
  const std::string meta =
      R"("is_param": false, "use_pickle": false, "tensor_meta": {"storage_offset": {"as_int": 0}, "requires_grad": false, "layout": 7, )";
  const std::string constants =
      R"({"config": {"a": {"path_name": "tensor_0", )" + meta +
      R"("dtype": 7, "sizes": [{"as_int": 2}, {"as_int": 3}], "strides": [{"as_int": 3}, {"as_int": 1}]}}, "b": {"path_name": "tensor_1", )" +
      meta +
      R"("dtype": 5, "sizes": [{"as_int": 3}], "strides": [{"as_int": 1}]}}, "c": {"path_name": "tensor_1", )" +
      meta +
      R"("dtype": 12, "sizes": [{"as_int": 2}, {"as_int": 1}], "strides": [{"as_int": 1}, {"as_int": 1}]}}}})";
  return ZipFile()
      .add("m/models/model.json", program)
      .add("m/data/weights/model_weights_config.json", R"({"config": {}})")
      .add("m/data/constants/model_constants_config.json", constants)
      .add("m/data/constants/tensor_0", std::string(24, '\x3f'))
      .add("m/data/constants/tensor_1",
           std::string("\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0", 24))
      .bytes();
}

void read_and_fold() {
  using namespace exported;
  const ExportedModel model = read_exported(archive_path());
  std::vector<InputSizes> inputs;
  for (const GraphInput& input : model.graph.inputs) {
    if (input.kind != InputKind::user) continue;
    InputSizes sizes{input.name, {}};
    for (const Size& size : model.graph.tensor(input.tensor).sizes)
      sizes.sizes.push_back(size.is_fixed() ? size.value() : 4);
    inputs.push_back(std::move(sizes));
  }
  FoldOptions options;
  options.limits = {1 << 20, 1 << 20};
  const FoldedGraph folded =
      fold(model, with_sizes(model.graph, solve_symbols(model.graph, inputs)), options);
  for (const auto& [id, value] : folded.constants)
    if (value.elements() < 1 << 16)
      check(!value.sizes.empty() || !value.bytes().empty(), "a value without bytes");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  std::ofstream(archive_path(), std::ios::binary)
      << (bytes.starts_with('{') ? archive_of(bytes) : std::string(bytes));
  try {
    read_and_fold();
  } catch (const UserError&) {
    return 0;  // refused, as it should be
  }
  return 0;
}
