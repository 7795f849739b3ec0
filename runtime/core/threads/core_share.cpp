#include "runtime/core/threads/core_share.h"

#include "runtime/core/cpu.h"
#include "runtime/core/threads/parts.h"

namespace dstrain {

void bind_to_cores(const std::vector<int>& cores, int threads) {
  bind_process(cores);
  set_thread_count(threads);
}

int take_core_share(int rank_on_host, int ranks_on_host, int threads) {
  if (threads <= 0) threads = threads_per_rank(ranks_on_host);
  bind_to_cores(cores_of_rank(usable_cores(), rank_on_host, ranks_on_host), threads);
  return threads;
}

}  // namespace dstrain
