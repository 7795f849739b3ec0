#include "runtime/comm/mpi/slurm_fence.h"

#include <dlfcn.h>
#include <pmix.h>

#include <cstdlib>
#include <memory>
#include <string_view>

#include "runtime/core/error.h"

namespace dstrain {

void meet_in_slurm() {
  const char* const name = std::getenv("PMIX_NAMESPACE");
  if (!name || !std::string_view(name).starts_with("slurm.")) return;
  // The library that MPI_Init has initialised; a second one would be a second client of the server.
  const std::unique_ptr<void, int (*)(void*)> library(
      ::dlopen("libpmix.so.2", RTLD_NOW | RTLD_NOLOAD), &::dlclose);
  if (!library) return;
  const auto fence = reinterpret_cast<decltype(&PMIx_Fence)>(::dlsym(library.get(), "PMIx_Fence"));
  if (!fence) return;
  pmix_info_t collects{};
  std::string_view(PMIX_COLLECT_DATA).copy(collects.key, PMIX_MAX_KEYLEN);
  collects.value.type = PMIX_BOOL;
  collects.value.data.flag = true;
  const pmix_status_t status = fence(nullptr, 0, &collects, 1);
  if (status != PMIX_SUCCESS)
    fail_run("the tasks of srun do not meet after MPI_Init: PMIx_Fence returns {}", status);
}

}  // namespace dstrain
