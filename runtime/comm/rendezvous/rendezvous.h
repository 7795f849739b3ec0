// Rendezvous: how ranks exchange small records before they have a communicator. Three implementations: MPI
// (mpi_session.h), the board of the process that launched all ranks on this machine (board_rendezvous.h),
// and, for a part of the ranks, the communicator that they have already (part_rendezvous.h).
#pragma once

#include <algorithm>
#include <cstddef>
#include <type_traits>
#include <vector>

namespace dstrain {

class Rendezvous {
 public:
  Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  virtual ~Rendezvous() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Returns the number in the world of a rank of this rendezvous.
  virtual int world_rank(int rank) const { return rank; }

  // Collective. Returns every rank's `mine`, by rank. Throws RunError if a rank does not join.
  template <class Record>
  std::vector<Record> gather(const Record& mine) {
    static_assert(std::is_trivially_copyable_v<Record>);
    std::vector<Record> all(static_cast<size_t>(size()));
    gather_bytes(&mine, all.data(), sizeof(Record));
    return all;
  }
  // Collective. Returns whether `mine` is true on all ranks.
  bool all_agree(bool mine) {
    const std::vector<char> all = gather(mine ? '\1' : '\0');
    return std::find(all.begin(), all.end(), '\0') == all.end();
  }

  // Ends a good run. The caller must know that all ranks have met.
  virtual void leave() = 0;

 private:
  virtual void gather_bytes(const void* mine, void* all, size_t bytes) = 0;
};

}  // namespace dstrain
