// Packets: small operations between hosts. All that a host's ranks give travels in one message to each
// other host, between the first ranks of both, which read and write for the ranks of their machine:
// latency is one hop, where the windows of an Exchange take up to three. Sums are made where they are
// needed, of every rank's own elements in rank order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "runtime/comm/mpi/mpi_session.h"
#include "runtime/comm/ordered.h"
#include "runtime/comm/rendezvous/host_map.h"

namespace dstrain {

class Packets {
 public:
  // What a host sends for one operation at most, values aside: beyond it the fewer bytes of routes
  // count for more than their hops.
  static constexpr int64_t kMostBytes = int64_t{64} << 10;

  // Every packet begins with `header_bytes` that the caller fills. `mpi` and `hosts` outlive this object.
  Packets(const MpiSession& mpi, const HostMap& hosts, size_t header_bytes);

  // Whether an operation travels so; the same on all ranks that do the same.
  bool carry(const OpKey& key) const;
  // Of the largest packet, header included.
  size_t most_bytes() const;

  // Where the tensors of this machine's ranks lie, by index in the host: what a sum adds and where its
  // result goes (a scatter's to `slices`), what a gather or broadcast fills; a gather's own slice is in
  // its place already.
  struct Places {
    std::vector<std::byte*> wholes;
    std::vector<std::byte*> slices;
  };
  // Puts what this rank gives where the first rank of its machine reads it: into its whole tensor.
  void give(const Operation& op, std::byte* whole) const;
  // Takes its result from where that one wrote it: the whole, or a scattered slice.
  void take(const Operation& op, const std::byte* whole, const std::byte* scattered) const;

  // For the first rank of each host. Sends `header` and, where the ranks of this machine agree
  // (`places` is not null), what they give; receives the same of every other host. `tag`: of all such
  // messages.
  void exchange(const OpKey& key, const Places* places, std::span<const std::byte> header, int tag);
  // Whether all of it is done; does not block.
  bool arrived();
  // Of a host, this one's included, once it has arrived.
  const std::byte* header(int host) const { return received_[static_cast<size_t>(host)].data(); }
  // All headers being as they should: makes the results of this machine.
  void unpack(const OpKey& key, const Places& places);
  // A rank of another host whose packet is awaited, or -1.
  int waited_rank() const;

 private:
  int64_t bytes(const OpKey& key, int from, int to) const;
  void pack(const OpKey& key, const Places& places, int to, std::byte* packet) const;
  std::byte* slice(const OpKey& key, std::byte* whole, int rank) const;
  // What rank `r` gives, where it lies here: `part` is the slice of a scattered sum.
  const std::byte* given(const OpKey& key, const Places& places, int r, int part) const;
  void add(const OpKey& key, const Places& places, std::span<std::byte* const> results, int part);

  const HostMap* hosts_;
  int rank_, host_;
  MPI_Comm comm_;
  size_t header_bytes_;
  std::vector<std::vector<std::byte>> received_, sent_;  // by host
  std::vector<MPI_Request> requests_;                    // receives by host, then sends by host
  std::vector<const std::byte*> sources_;                // of a sum
};

}  // namespace dstrain
