// A rank's share of the cores of its host, and its threads on them.
#pragma once

#include <vector>

namespace dstrain {

// Binds this process to `cores` and sets its thread count. The caller must call it once, from the main thread, before
// there is any other thread but those of computations (set_thread_count). Throws RunError.
void bind_to_cores(const std::vector<int>& cores, int threads);

// Binds this process to the cores of its rank, under the same conditions. Returns the thread count:
// `threads`, or threads_per_rank() if that is 0.
int take_core_share(int rank_on_host, int ranks_on_host, int threads = 0);

}  // namespace dstrain
