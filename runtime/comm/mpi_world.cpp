#include <algorithm>
#include <string>

#include "runtime/comm/hosts/host_comm.h"
#include "runtime/comm/mpi/mpi_comm.h"
#include "runtime/comm/mpi/mpi_session.h"
#include "runtime/comm/shared/shared_comm.h"
#include "runtime/comm/world.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

bool few_enough(const HostMap& hosts) {
  for (int h = 0; h < hosts.hosts(); ++h)
    if (hosts.ranks_on(h) > kMaxRanks) return false;
  return true;
}

// Returns a communicator that shares memory within machines, or nullptr if ranks of one machine cannot.
std::unique_ptr<Communicator> share_memory(std::unique_ptr<MpiSession>& mpi, Peers& peers,
                                           const CommOptions& options) {
  const HostMap& hosts = peers.hosts();
  const bool one = hosts.hosts() == 1;
  const int64_t bounce =
      std::max(SharedGroup::kBounceBytes, one ? 0 : Exchange::least_bounce_bytes(hosts));
  std::string why;
  auto group = SharedGroup::open(*mpi, peers, bounce, why);
  if (group && one)
    return std::make_unique<SharedComm>(std::move(mpi), std::move(peers), std::move(group),
                                        options);
  if (group)
    return std::make_unique<HostComm>(std::move(mpi), std::move(peers), std::move(group), options);
  warn_of_messages(options, mpi->rank(), why);
  return nullptr;
}

}  // namespace

bool has_mpi() {
  return true;
}

std::unique_ptr<Communicator> join_by_mpi(const TransportChoice& choice,
                                          const CommOptions& options) {
  auto mpi = std::make_unique<MpiSession>();
  Peers peers(*mpi, choice.hosts.empty() ? 0 : choice.hosts[static_cast<size_t>(mpi->rank())]);
  if (!choice.messages && few_enough(peers.hosts()))
    if (auto comm = share_memory(mpi, peers, options)) return comm;
  return std::make_unique<MpiComm>(std::move(mpi), std::move(peers), options);
}

}  // namespace dstrain
