#include "runtime/comm/rendezvous/peers.h"

#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

namespace dstrain {
namespace {

// Names this boot of this machine and this process's pid namespace.
std::string this_process_space() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  std::getline(file, boot);
  std::error_code error;
  return boot + std::filesystem::read_symlink("/proc/self/ns/pid", error).string();
}

}  // namespace

std::vector<Peers::Identity> Peers::gather(Rendezvous& ranks, int pretended_host) {
  Identity mine;
  ::gethostname(mine.host.data(), mine.host.size() - 1);
  const std::string space = this_process_space();
  std::copy_n(space.begin(), std::min(space.size(), mine.process_space.size() - 1),
              mine.process_space.begin());
  mine.pretended_host = pretended_host;
  mine.world_rank = ranks.world_rank(ranks.rank());
  mine.pid = ::getpid();
  return ranks.gather(mine);
}

HostMap Peers::map() const {
  std::vector<int> labels;
  for (const Identity& who : identities_) {
    const auto same = std::find_if(identities_.begin(), identities_.end(), [&](const Identity& o) {
      return o.host == who.host && o.process_space == who.process_space &&
             o.pretended_host == who.pretended_host;
    });
    labels.push_back(static_cast<int>(same - identities_.begin()));
  }
  return HostMap(labels);
}

Peers::Peers(Rendezvous& ranks, int pretended_host)
    : rank_(ranks.rank()), identities_(gather(ranks, pretended_host)), hosts_(map()) {
  for (const Identity& who : identities_)
    processes_.push_back(who.process_space == of(rank_).process_space ? PeerProcess(who.pid)
                                                                      : PeerProcess());
}

bool Peers::alive(int rank) const {
  const PeerProcess& process = processes_[static_cast<size_t>(rank)];
  return process.pid() == 0 || process.alive();
}

std::string Peers::name(int rank) const {
  const Identity& who = of(rank);
  if (who.host == of(rank_).host) return fmt::format("rank {} (pid {})", who.world_rank, who.pid);
  return fmt::format("rank {} (pid {} on {})", who.world_rank, who.pid, who.host.data());
}

}  // namespace dstrain
