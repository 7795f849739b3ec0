// CoreBinding: the cores of each rank of a host, if --bind_cores_to_rank or --bind_core_list asks for it. Shares are
// equal and contiguous, as in DeepSpeed, and the remaining cores stay free. Invariant: no two ranks of a host get the
// same core.
#pragma once

#include <vector>

#include "launcher/cli/launch_options.h"

namespace dstrain {

class CoreBinding {
 public:
  // Throws UserError if --bind_core_list is not an ascending list without overlap ("0-3,8-11").
  explicit CoreBinding(const LaunchOptions& options);

  // Returns whether one of the two options is given.
  bool wanted() const { return wanted_; }

  // Returns the cores of a rank: a share of the list, or of all physical cores of `usable`. Throws UserError if a rank
  // would have none, or a core of the list is not usable.
  std::vector<int> cores_of(int rank_on_host, int ranks_on_host,
                            const std::vector<int>& usable) const;

  // Binds this process to the cores of its rank, with one thread on each, and its memory to their NUMA node if
  // there are several nodes. Returns the number of threads.
  int bind(int rank_on_host, int ranks_on_host) const;

 private:
  bool wanted_;
  std::vector<int> list_;  // empty: all physical cores
};

}  // namespace dstrain
