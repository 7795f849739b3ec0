// Reads any bytes as a configuration file, which gives verdicts or one SyntaxError, and never a crash, a hang or
// another exception. A Job must be the same after resolved_config.json.
#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "models/registry.h"
#include "runtime/config/load.h"
#include "runtime/config/report/check_report.h"
#include "runtime/config/report/resolved_config.h"
#include "runtime/core/error.h"

namespace {

// Returns the path of a file in memory with the input.
std::string scratch_file(const uint8_t* data, size_t size) {
  static const int fd = memfd_create("config", 0);
  if (ftruncate(fd, 0) != 0 || pwrite(fd, data, size, 0) != static_cast<ssize_t>(size)) abort();
  return "/proc/self/fd/" + std::to_string(fd);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  dstrain::ConfigRequest request;
  request.path = scratch_file(data, size);
  request.ranks = 2;
  request.output = "out";  // a resolved configuration names the directory
  request.models = &dstrain::model_registry();
  const dstrain::LoadedConfig loaded = dstrain::check_config(request);
  for (const auto lines : {dstrain::CheckLines::notable, dstrain::CheckLines::all})
    dstrain::check_text(loaded.verdicts, lines);
  dstrain::check_json(loaded.verdicts);
  if (has_errors(loaded.verdicts)) return 0;
  if (!(dstrain::job_from_resolved(dstrain::resolved_config_json(loaded),
                                   dstrain::model_registry()) == loaded.job))
    abort();
  return 0;
}
