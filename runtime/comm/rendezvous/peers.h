// Peers: the machine and process of every rank, exchanged once at start-up.
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
  // Collective over `ranks`. Ranks with different `pretended_host` count as ranks of different machines.
  Peers(Rendezvous& ranks, int pretended_host);

  // Ranks share a machine, and can reach each other's memory, if host name, boot and process-number space
  // are the same. One alone does not suffice: clones of a machine share its name; containers and network
  // namespaces with host names of their own share its boot.
  const HostMap& hosts() const { return hosts_; }
  int64_t pid(int rank) const { return of(rank).pid; }
  // Returns false once the process has ended; true if that cannot be told.
  bool alive(int rank) const;
  // "rank 1 (pid 4711)", with its number in the world; "rank 1 (pid 4711 on node2)" for another host.
  std::string name(int rank) const;

 private:
  struct Identity {
    std::array<char, 65> host{};           // Linux allows 64 characters
    std::array<char, 64> process_space{};  // equal if process numbers mean the same processes
    int32_t pretended_host = 0;
    int32_t world_rank = 0;
    int64_t pid = 0;
  };
  const Identity& of(int rank) const { return identities_[static_cast<size_t>(rank)]; }
  static std::vector<Identity> gather(Rendezvous& ranks, int pretended_host);
  HostMap map() const;

  int rank_ = 0;
  std::vector<Identity> identities_;
  HostMap hosts_;
  std::vector<PeerProcess> processes_;  // pid 0: a process of another process-number space
};

}  // namespace dstrain
