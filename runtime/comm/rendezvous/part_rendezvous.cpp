#include "runtime/comm/rendezvous/part_rendezvous.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {

PartRendezvous::PartRendezvous(Communicator& parent, std::span<const int> ranks,
                               std::vector<int> world_ranks)
    : parent_(parent),
      ranks_(ranks.begin(), ranks.end()),
      world_ranks_(std::move(world_ranks)),
      rank_(static_cast<int>(std::find(ranks_.begin(), ranks_.end(), parent.rank()) -
                             ranks_.begin())) {}

// Returns the records of all ranks of the parent, each in as many doubles.
std::vector<double> PartRendezvous::gather_all(const void* mine, size_t bytes) {
  const size_t doubles = (bytes + sizeof(double) - 1) / sizeof(double);
  std::vector<double> own(doubles), all(doubles * static_cast<size_t>(parent_.size()));
  std::memcpy(own.data(), mine, bytes);
  parent_.gather_values(own, all);
  return all;
}

void PartRendezvous::gather_bytes(const void* mine, void* all, size_t bytes) {
  const std::vector<double> records = gather_all(mine, bytes);
  const size_t doubles = records.size() / static_cast<size_t>(parent_.size());
  auto* to = static_cast<std::byte*>(all);
  for (const int r : ranks_) {
    std::memcpy(to, records.data() + static_cast<size_t>(r) * doubles, bytes);
    to += bytes;
  }
}

int PartRendezvous::odd_rank() {
  PartList mine{ranks_.front(), static_cast<int32_t>(ranks_.size()), 0};
  for (const int r : ranks_)
    mine.digest = (mine.digest ^ static_cast<uint64_t>(r)) * 1099511628211u;
  const std::vector<PartList> lists = gather(mine);
  const auto odd = std::find_if(lists.begin(), lists.end(),
                                [&](const PartList& list) { return !(list == mine); });
  return odd == lists.end() ? -1 : ranks_[static_cast<size_t>(odd - lists.begin())];
}

}  // namespace dstrain
