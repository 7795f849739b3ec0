// Any bytes as a configuration file: a tree and verdicts, or one SyntaxError; never a crash, a hang or
// another exception. What trains must survive resolved_config.json unchanged.
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "runtime/config/load.h"
#include "runtime/core/error.h"

namespace {

// One file in memory, written anew for every input.
std::string scratch_file(const uint8_t* data, size_t size) {
  static const std::string path = [] {
    std::string pattern = "/dev/shm/dstrain_fuzz_XXXXXX";
    close(mkstemp(pattern.data()));
    return pattern;
  }();
  FILE* file = fopen(path.c_str(), "wb");
  fwrite(data, 1, size, file);
  fclose(file);
  return path;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dstrain::ConfigRequest request;
  request.path = scratch_file(data, size);
  request.ranks = 2;
  const dstrain::LoadedConfig loaded = dstrain::check_config(request);
  dstrain::check_text(loaded.verdicts);
  dstrain::check_json(loaded.verdicts);
  if (has_errors(loaded.verdicts)) return 0;
  if (!(dstrain::job_from_resolved(dstrain::resolved_config_json(loaded)) == loaded.job)) abort();
  return 0;
}
