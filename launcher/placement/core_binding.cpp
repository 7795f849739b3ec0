#include "launcher/placement/core_binding.h"

#include <algorithm>

#include "launcher/placement/ranges_text.h"
#include "runtime/config/text.h"
#include "runtime/core/cpu.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/core/threads/core_share.h"

namespace dstrain {

CoreBinding::CoreBinding(const LaunchOptions& options)
    : wanted_(options.bind_cores_to_rank || !options.bind_core_list.empty()) {
  if (options.bind_core_list.empty()) return;
  const auto cores = parse_cores(options.bind_core_list);
  if (!cores)
    fail_user(
        "--bind_core_list: expected cores and ranges of cores separated by commas, ascending and "
        "without overlap (0-3,8,10-11), got '{}'",
        printable(options.bind_core_list));
  list_ = *cores;
}

std::vector<int> CoreBinding::cores_of(int rank_on_host, int ranks_on_host,
                                       const std::vector<int>& usable) const {
  for (const int core : list_)
    if (!std::binary_search(usable.begin(), usable.end(), core))
      fail_user("--bind_core_list: core {} is not one that this process may use ({})", core,
                ranges_text(usable));
  const std::vector<int> cores = list_.empty() ? physical_cores(usable) : list_;
  const auto each = static_cast<int>(cores.size()) / ranks_on_host;
  if (each == 0)
    fail_user("{}: {} ({}) for {} ranks on a host: each rank needs one at least",
              list_.empty() ? "--bind_cores_to_rank" : "--bind_core_list",
              counted(static_cast<int64_t>(cores.size()), "core"), ranges_text(cores),
              ranks_on_host);
  const auto first = cores.begin() + rank_on_host * each;
  return {first, first + each};
}

int CoreBinding::bind(int rank_on_host, int ranks_on_host) const {
  const std::vector<int> cores = cores_of(rank_on_host, ranks_on_host, usable_cores());
  const auto threads = static_cast<int>(cores.size());
  bind_to_cores(cores, threads);
  const std::optional<int> node = memory_node_of(cores);
  if (node && !prefer_memory_of(*node))
    log::warn("the system does not let memory be bound to a NUMA node; cores are bound");
  return threads;
}

}  // namespace dstrain
