// What the environment variables of dstrain and of mpirun say about a rank, before it has a communicator.
#pragma once

namespace dstrain {

// Environment variables that dstrain sets for ranks which it starts itself, all on one machine.
inline constexpr const char* kWorldSizeVariable = "DSTRAIN_WORLD_SIZE";
inline constexpr const char* kWorldRankVariable = "DSTRAIN_WORLD_RANK";
bool started_without_mpirun();

// What the environment variables of dstrain or mpirun say about this process, without initialising MPI; 1,
// 0, 1, 0 if neither started it.
int world_size_from_environment();
int world_rank_from_environment();
int ranks_on_this_host_from_environment();
int rank_on_this_host_from_environment();

}  // namespace dstrain
