// MpiSession: this process's membership in MPI. Initialises MPI where nobody has, and then also
// finalises it in leave(); gathers small records while transports are set up. Everything MPI throws
// at us becomes RunError: the communicators return error codes instead of ending the process.
#pragma once

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace dstrain {

// Throws RunError with MPI's own text unless `code` is MPI_SUCCESS.
void check_mpi(int code, const std::string& what);

class MpiSession {
 public:
  MpiSession();
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  MPI_Comm comm() const { return comm_; }

  // Collective: `mine` of every rank, by rank.
  template <class Record>
  std::vector<Record> gather(const Record& mine) {
    static_assert(std::is_trivially_copyable_v<Record>);
    std::vector<Record> all(static_cast<size_t>(size_));
    gather_bytes(&mine, all.data(), sizeof(Record));
    return all;
  }
  // Collective: whether all ranks say yes.
  bool all_agree(bool mine);

  // Collective end; MPI_Finalize only where the constructor initialised MPI.
  void leave();

 private:
  void gather_bytes(const void* mine, void* all, size_t bytes);

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  bool initialised_here_ = false;
};

}  // namespace dstrain
