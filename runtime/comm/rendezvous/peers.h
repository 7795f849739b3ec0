// Peers: who the ranks are. Each tells the others its machine and process once, at start-up.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "runtime/comm/rendezvous/host_map.h"
#include "runtime/comm/rendezvous/peer_process.h"
#include "runtime/comm/rendezvous/rendezvous.h"

namespace dstrain {

class Peers {
 public:
  // Collective. Ranks with different `pretended_host` are taken for ranks of different machines.
  Peers(Rendezvous& ranks, int pretended_host);

  // Ranks share a machine where host name, boot and process-number space are the same: then they can
  // reach each other's memory. Neither alone tells: clones of a machine share its name, containers and
  // network namespaces with names of their own share its boot.
  const HostMap& hosts() const { return hosts_; }
  int64_t pid(int rank) const { return of(rank).pid; }
  // False once the process has ended; true where that cannot be told.
  bool alive(int rank) const;
  // "rank 1 (pid 4711)", and " on node2" where that is not this rank's.
  std::string name(int rank) const;

 private:
  struct Identity {
    std::array<char, 65> host{};           // as long as Linux allows
    std::array<char, 64> process_space{};  // equal where process numbers mean the same
    int32_t pretended_host = 0;
    int64_t pid = 0;
  };
  const Identity& of(int rank) const { return identities_[static_cast<size_t>(rank)]; }
  static std::vector<Identity> gather(Rendezvous& ranks, int pretended_host);
  HostMap map() const;

  int rank_ = 0;
  std::vector<Identity> identities_;
  HostMap hosts_;
  std::vector<PeerProcess> processes_;  // pid 0: numbers of another space
};

}  // namespace dstrain
