// MpiSession: this process's use of MPI, and the rendezvous of the ranks that mpirun started. Initializes
// MPI if it is not, and then also finalizes it in leave(). Sets MPI to return error codes instead of ending
// the process; check_mpi() turns them into RunError.
#pragma once

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <memory>
#include <string>

#include "runtime/comm/rendezvous/rendezvous.h"

namespace dstrain {

// Throws RunError with MPI's message unless `code` is MPI_SUCCESS. `what`: the call that returned it.
void check_mpi(int code, const std::string& what);

// Throws UserError unless `provided`, a thread level of MPI, lets several threads call it at a time.
void require_threads(int provided);

class MpiSession final : public Rendezvous {
 public:
  // Collective. Throws UserError if the MPI library lets only one thread at a time call it.
  MpiSession();

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  MPI_Comm comm() const { return comm_; }
  // The largest tag of a message.
  int tag_bound() const { return tag_bound_; }

  // Collective. Returns the session of the ranks with the same `part`; null for kNoPart. MPI has no deadline
  // here: the caller must know that all ranks are there.
  static constexpr int kNoPart = -1;
  std::unique_ptr<MpiSession> split(int part);

  // Collective; MPI_Finalize only where the constructor initialised MPI.
  void leave() override;

 private:
  MpiSession(MPI_Comm comm, int tag_bound);
  void read_comm();
  void gather_bytes(const void* mine, void* all, size_t bytes) override;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int tag_bound_ = 32767;  // the standard's minimum
  bool initialised_here_ = false;
};

}  // namespace dstrain
