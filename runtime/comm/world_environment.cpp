#include "runtime/comm/world_environment.h"

#include <cstdlib>

namespace dstrain {
namespace {

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

}  // namespace

bool started_without_mpirun() {
  return std::getenv(kWorldSizeVariable) != nullptr;
}

// All ranks that dstrain starts itself are on this machine.
int world_size_from_environment() {
  return from_environment(kWorldSizeVariable, from_environment("OMPI_COMM_WORLD_SIZE", 1));
}
int world_rank_from_environment() {
  return from_environment(kWorldRankVariable, from_environment("OMPI_COMM_WORLD_RANK", 0));
}
int ranks_on_this_host_from_environment() {
  return from_environment(kWorldSizeVariable, from_environment("OMPI_COMM_WORLD_LOCAL_SIZE", 1));
}
int rank_on_this_host_from_environment() {
  return from_environment(kWorldRankVariable, from_environment("OMPI_COMM_WORLD_LOCAL_RANK", 0));
}

}  // namespace dstrain
