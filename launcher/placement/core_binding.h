// CoreBinding: the cores of each rank of a host where the command line asks for it. Shares are equal
// and contiguous, as DeepSpeed's are: cores left over stay free. Stands on core/cpu.h and
// launch_options.h. Invariant: no two ranks of a host get the same core.
#pragma once

#include <vector>

#include "launcher/cli/launch_options.h"

namespace dstrain {

class CoreBinding {
 public:
  // Throws UserError for a --bind_core_list that is none ("0-3,8-11": ascending, no overlap).
  explicit CoreBinding(const LaunchOptions& options);

  // Whether --bind_cores_to_rank or --bind_core_list is given.
  bool wanted() const { return wanted_; }

  // The cores of a rank, out of `usable`: of the list, or of all physical cores. Throws UserError where
  // a rank would have none, or a core of the list is not usable.
  std::vector<int> cores_of(int rank_on_host, int ranks_on_host,
                            const std::vector<int>& usable) const;

  // Binds this process to the cores of its rank, one OpenMP thread for each, its memory to their NUMA
  // node where there are several nodes. Returns the number of threads.
  int take(int rank_on_host, int ranks_on_host) const;

 private:
  bool wanted_;
  std::vector<int> list_;  // empty: all physical cores
};

}  // namespace dstrain
