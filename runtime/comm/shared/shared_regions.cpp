#include "runtime/comm/shared/shared_regions.h"

#include <array>
#include <numeric>

#include "runtime/core/error.h"

namespace dstrain {

Memory SharedRegions::allocate(Communicator& comm, const SharedGroup& group, const Peers& peers,
                               int64_t bytes, const std::string& what) {
  const auto ranks = static_cast<size_t>(comm.size());
  Memory mine;
  std::string error;
  try {
    mine = Memory::shared(bytes, what);
  } catch (const RunError& e) {
    error = e.what();
  }
  const std::array<double, 2> offer{error.empty() ? mine.fd() : -2.0,
                                    static_cast<double>(mine.bytes())};
  std::vector<double> offers(2 * ranks);
  comm.gather_values(offer, offers);
  Region region;
  region.bytes = mine.bytes();
  region.own = mine.data();
  if (mine.data()) region.life = mine.watch();
  for (int i = 0; i < group.size() && error.empty(); ++i) {
    const int r = group.rank_of(i);
    const int fd = static_cast<int>(offers[2 * static_cast<size_t>(r)]);
    const auto peer_bytes = static_cast<int64_t>(offers[2 * static_cast<size_t>(r) + 1]);
    region.bases.push_back(mine.data());
    if (r == comm.rank() || peer_bytes == 0) continue;
    try {
      region.mapped.push_back(Memory::open_peer(peers.pid(r), fd, peer_bytes));
      region.bases.back() = region.mapped.back().data();
    } catch (const RunError& e) {
      error = e.what();
    }
  }
  const std::array<double, 1> failed{error.empty() ? 0.0 : 1.0};
  std::vector<double> failures(ranks);
  comm.gather_values(failed, failures);
  if (!error.empty()) fail_run("{}", error);
  for (size_t r = 0; r < ranks; ++r)
    if (failures[r] != 0) fail_run("rank {} got no shared memory for {}", r, what);
  regions_.push_back(std::move(region));
  return mine;
}

TensorPlace SharedRegions::place_of(const std::byte* data, int64_t bytes) const {
  for (size_t i = 0; i < regions_.size(); ++i) {
    const Region& region = regions_[i];
    if (region.life.expired() || data < region.own || data + bytes > region.own + region.bytes)
      continue;
    return {static_cast<int64_t>(i), data - region.own};
  }
  return {TensorPlace::kStaged, 0};
}

RegionView::RegionView(const SharedRegions& regions, const SharedGroup& group)
    : regions_(&regions), locals_(static_cast<size_t>(group.size())) {
  std::iota(locals_.begin(), locals_.end(), 0);
}

RegionView RegionView::of_part(const HostMap& hosts, const PartRendezvous& ranks,
                               const SharedGroup& group) const {
  RegionView view;
  view.regions_ = regions_;
  for (int i = 0; i < group.size(); ++i) {
    const int index = hosts.index_of(ranks.parent_rank(group.rank_of(i)));
    view.locals_.push_back(locals_[static_cast<size_t>(index)]);
  }
  return view;
}

}  // namespace dstrain
