// Packets: carries out small operations between hosts with one message from each host to each other host. A
// message holds the sources of all ranks of its host. Only the leaders exchange these messages; they read and
// write the tensors of their machine's ranks. So the latency is one hop, where the windows of an Exchange
// take up to three. Each host adds the elements of all ranks itself, in rank order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/comm/mpi/messages.h"
#include "runtime/comm/mpi/mpi_session.h"
#include "runtime/comm/operation.h"
#include "runtime/comm/rendezvous/host_map.h"

namespace dstrain {

class Packets {
 public:
  // The most that a host sends for one operation, gather_values apart. With more, the fewer bytes of an
  // Exchange outweigh its hops.
  static constexpr int64_t kMostBytes = int64_t{64} << 10;

  // Every packet begins with a header of `header_bytes` from the caller. `mpi` and `hosts` outlive this
  // object.
  Packets(const MpiSession& mpi, const HostMap& hosts, size_t header_bytes);

  // Returns whether an operation travels in packets; it depends on `key` and `hosts` alone.
  bool carry(const OpKey& key) const;
  // Returns the size of the largest packet, with its header.
  size_t most_bytes() const;

  // The addresses of the tensors of this machine's ranks, by index in the host. Sources are read from `wholes`
  // and results are written there; only those of a scatter and of an all-to-all are written to `slices`. For a gather
  // each rank's own slice is already at its place in the whole.
  struct RankAddresses {
    std::vector<std::byte*> wholes;
    std::vector<std::byte*> slices;
  };
  // Copies this rank's source to its whole tensor, where the leader reads it.
  void stage_in(const Operation& op, std::byte* whole) const;
  // Copies this rank's result from where the leader has written it: the whole, or what it has in `slices`.
  void stage_out(const Operation& op, const std::byte* whole, const std::byte* scattered) const;

  // The rest is for the leader of each host.

  // Sends `header` to the other leaders and receives theirs. If the ranks of this machine agree (`places`
  // is not null), their sources travel with it. `tag`: of all such messages.
  void exchange(const OpKey& key, const RankAddresses* places, std::span<const std::byte> header,
                int tag);
  Awaited& messages() { return messages_; }
  // The header of a host, this one included, once messages() are complete.
  const std::byte* header(int host) const { return received_[static_cast<size_t>(host)].data(); }
  // Writes the results of this machine's ranks, once all headers agree.
  void unpack(const OpKey& key, const RankAddresses& places);

 private:
  int64_t bytes(const OpKey& key, int from, int to) const;
  void pack(const OpKey& key, const RankAddresses& places, int to, std::byte* packet) const;
  std::byte* slice(const OpKey& key, std::byte* whole, int rank) const;
  // Where rank r's source lies on this host: of a scatter or an all-to-all its slice `part`.
  const std::byte* source(const OpKey& key, const RankAddresses& places, int r, int part) const;
  void add(const OpKey& key, const RankAddresses& places, std::span<std::byte* const> results,
           int part);

  const HostMap* hosts_;
  int rank_, host_;
  size_t header_bytes_;
  std::vector<std::vector<std::byte>> received_, sent_;  // by host
  Messages messages_;
  std::vector<const std::byte*> sources_;  // of a sum
};

}  // namespace dstrain
