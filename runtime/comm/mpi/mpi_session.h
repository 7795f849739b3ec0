// MpiSession: this process's membership in MPI, and the rendezvous of ranks that it joins. Initialises
// MPI where nobody has, and then also finalises it in leave(). Everything MPI throws at us becomes
// RunError: the communicators return error codes instead of ending the process.
#pragma once

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <string>

#include "runtime/comm/rendezvous/rendezvous.h"

namespace dstrain {

// Throws RunError with MPI's own text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const std::string& what);

// Throws UserError unless several threads may call MPI at a time with what it `provided`.
void require_threads(int provided);

class MpiSession final : public Rendezvous {
 public:
  // Throws UserError where the MPI library lets only one thread at a time call it.
  MpiSession();

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  MPI_Comm comm() const { return comm_; }
  // The largest tag that a message may carry.
  int tag_bound() const { return tag_bound_; }

  // Collective; MPI_Finalize only where the constructor initialised MPI.
  void leave() override;

 private:
  void gather_bytes(const void* mine, void* all, size_t bytes) override;

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  int tag_bound_ = 32767;  // what every MPI has
  bool initialised_here_ = false;
};

}  // namespace dstrain
