// Reads any bytes as the config.json of a model, which gives verdicts or a UserError, and never a crash, a hang or another
// exception. What a run would write of it is JSON.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "models/registry.h"
#include "runtime/config/load.h"
#include "runtime/core/error.h"

namespace {

// Returns a folder in memory or on disk with a configuration, in which config.json is written anew each time.
const std::filesystem::path& folder() {
  static const std::filesystem::path path = [] {
    std::string name = std::filesystem::temp_directory_path() / "dstrain_fuzz_XXXXXX";
    if (!mkdtemp(name.data())) abort();
    std::ofstream(std::filesystem::path(name) / "ds.json")
        << "{\"train_micro_batch_size_per_gpu\": 1}";
    return std::filesystem::path(name);
  }();
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::ofstream(folder() / "config.json", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  dstrain::ConfigRequest request;
  request.path = folder() / "ds.json";
  request.model = folder().string();
  request.ranks = 1;
  request.models = &dstrain::model_registry();
  try {
    const dstrain::LoadedConfig loaded = dstrain::check_config(request);
    if (!has_errors(loaded.verdicts) && !nlohmann::json::accept(loaded.config_json)) abort();
  } catch (const dstrain::UserError&) {
    return 0;  // refused, as it should be
  }
  return 0;
}
