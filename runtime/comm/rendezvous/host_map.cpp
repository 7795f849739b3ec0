#include "runtime/comm/rendezvous/host_map.h"

#include <algorithm>
#include <map>

#include "runtime/core/error.h"

namespace dstrain {

HostMap::HostMap(std::span<const int> labels) {
  check(!labels.empty(), "a world without ranks");
  std::map<int, int> numbers;
  for (size_t r = 0; r < labels.size(); ++r) {
    const auto [it, fresh] = numbers.try_emplace(labels[r], hosts());
    if (fresh) ranks_of_.emplace_back();
    const int host = it->second;
    consecutive_ = consecutive_ && (fresh || host_of_.back() == host);
    host_of_.push_back(host);
    index_of_.push_back(ranks_on(host));
    ranks_of_[static_cast<size_t>(host)].push_back(static_cast<int>(r));
    lanes_ = std::max(lanes_, ranks_on(host));
  }
}

}  // namespace dstrain
