// A barrier of the tasks of one step of Slurm, without messages of MPI. MPI_Init of Open MPI 4.1 ends with a PMIx
// fence that carries no data. Slurm answers such a fence on each node by itself unless mpi.conf says
// PMIxFenceBarrier=yes, so that a rank on another node may send before this rank takes messages: the receiver
// then calls a null function and dies of signal 11. Slurm answers a fence that collects data only once all tasks
// are there.
#pragma once

namespace dstrain {

// Collective over all ranks, right after MPI_Init. Returns once every rank has returned from MPI_Init; at once if
// these are no tasks of srun, whose MPI_Init is a barrier by itself, or where Open MPI has another PMIx library than
// libpmix.so.2. Throws RunError if the fence fails. There is no deadline: the caller must watch the start.
void meet_in_slurm();

}  // namespace dstrain
