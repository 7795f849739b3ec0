#include "runtime/comm/hosts/packets.h"

#include <algorithm>
#include <cstring>

#include "runtime/comm/sums.h"

namespace dstrain {
namespace {

int64_t element_bytes(const OpKey& key) {
  return key.elements * size_of(key.dtype);
}

bool gathers(Collective kind) {
  return kind == Collective::all_gather || kind == Collective::gather_values;
}

// Whether each rank gives a slice to each rank.
bool scatters(Collective kind) {
  return traits_of(kind).sliced_source;
}

}  // namespace

Packets::Packets(const MpiSession& mpi, const HostMap& hosts, size_t header_bytes)
    : hosts_(&hosts),
      rank_(mpi.rank()),
      host_(hosts.host_of(rank_)),
      header_bytes_(header_bytes),
      messages_(mpi, 2 * static_cast<size_t>(hosts.hosts())) {
  const auto count = static_cast<size_t>(hosts.hosts());
  received_.resize(count);
  sent_.resize(count);
  if (hosts.index_of(rank_) != 0) return;
  for (auto* buffers : {&received_, &sent_})
    for (std::vector<std::byte>& buffer : *buffers) buffer.resize(most_bytes());
}

size_t Packets::most_bytes() const {
  return header_bytes_ +
         static_cast<size_t>(std::max(kMostBytes, hosts_->lanes() * kMaxValueBytes));
}

bool Packets::carry(const OpKey& key) const {
  if (key.kind == Collective::barrier || key.kind == Collective::gather_values) return true;
  if (key.kind == Collective::exchange_rows) return false;  // parts are unequal
  const int64_t ranks = hosts_->lanes();                    // of the largest host
  int64_t sent = element_bytes(key) * (hosts_->hosts() - 1);
  if (sent > kMostBytes) return false;
  if (!is_copy(key.kind)) sent *= ranks;
  if (scatters(key.kind)) sent *= ranks;
  return sent <= kMostBytes;
}

int64_t Packets::bytes(const OpKey& key, int from, int to) const {
  const int64_t one = element_bytes(key), ranks = hosts_->ranks_on(from);
  switch (key.kind) {
    case Collective::all_reduce:
    case Collective::all_gather:
    case Collective::gather_values:
      return one * ranks;
    case Collective::reduce_scatter:
    case Collective::all_to_all:
      return one * ranks * hosts_->ranks_on(to);
    case Collective::broadcast:
    case Collective::message:
      return hosts_->host_of(key.root) == from ? one : 0;
    case Collective::exchange_rows:
    case Collective::barrier:
      return 0;
  }
  return 0;
}

void Packets::stage_in(const Operation& op, std::byte* whole) const {
  const OpKey& key = op.key;
  int64_t count = element_bytes(key);
  if (count == 0 || key.kind == Collective::barrier) return;
  const std::byte* from = op.in;
  if (key.kind == Collective::gather_values)
    from = reinterpret_cast<const std::byte*>(op.values.data());
  std::byte* to = gathers(key.kind) ? slice(key, whole, rank_) : whole;
  if (scatters(key.kind)) count *= hosts_->ranks();
  if (to != from) std::memcpy(to, from, static_cast<size_t>(count));
}

void Packets::stage_out(const Operation& op, const std::byte* whole,
                        const std::byte* scattered) const {
  const OpKey& key = op.key;
  int64_t count = element_bytes(key);
  if (count == 0 || key.kind == Collective::barrier) return;
  const std::byte* from = scatters(key.kind) ? scattered : whole;
  std::byte* to = op.out;
  if (key.kind == Collective::gather_values)
    to = reinterpret_cast<std::byte*>(op.all_values.data());
  if (gathers(key.kind) || key.kind == Collective::all_to_all) count *= hosts_->ranks();
  if (to != from) std::memcpy(to, from, static_cast<size_t>(count));
}

std::byte* Packets::slice(const OpKey& key, std::byte* whole, int rank) const {
  return whole + rank * element_bytes(key);
}

void Packets::pack(const OpKey& key, const RankAddresses& places, int to, std::byte* packet) const {
  const auto n = static_cast<size_t>(element_bytes(key));
  if (n == 0) return;
  const std::span<const int> own = hosts_->ranks_of(host_);
  const auto put = [&](const std::byte* from) {
    std::memcpy(packet, from, n);
    packet += n;
  };
  if (is_copy(key.kind)) {
    if (hosts_->host_of(key.root) == host_)
      put(places.wholes[static_cast<size_t>(hosts_->index_of(key.root))]);
  } else if (scatters(key.kind)) {
    for (const int part : hosts_->ranks_of(to))
      for (std::byte* whole : places.wholes) put(slice(key, whole, part));
  } else if (key.kind != Collective::barrier) {
    for (size_t i = 0; i < own.size(); ++i)
      put(gathers(key.kind) ? slice(key, places.wholes[i], own[i]) : places.wholes[i]);
  }
}

void Packets::exchange(const OpKey& key, const RankAddresses* places,
                       std::span<const std::byte> header, int tag) {
  for (int h = 0; h < hosts_->hosts(); ++h) {
    const auto i = static_cast<size_t>(h);
    std::vector<std::byte>& out = h == host_ ? received_[i] : sent_[i];
    std::copy(header.begin(), header.end(), out.begin());
    if (h == host_) continue;
    if (places != nullptr) pack(key, *places, h, out.data() + header_bytes_);
    const int peer = hosts_->ranks_of(h).front();
    const auto size =
        static_cast<int64_t>(header_bytes_) + (places != nullptr ? bytes(key, host_, h) : 0);
    messages_.receive(peer, tag, received_[i].data(), static_cast<int64_t>(received_[i].size()));
    messages_.send(peer, tag, out.data(), size);
  }
}

const std::byte* Packets::source(const OpKey& key, const RankAddresses& places, int r,
                                 int part) const {
  const int host = hosts_->host_of(r), index = hosts_->index_of(r);
  const int64_t n = element_bytes(key);
  if (host == host_) {
    std::byte* whole = places.wholes[static_cast<size_t>(index)];
    if (gathers(key.kind)) return slice(key, whole, r);
    return scatters(key.kind) ? slice(key, whole, part) : whole;
  }
  const std::byte* packet = received_[static_cast<size_t>(host)].data() + header_bytes_;
  if (is_copy(key.kind)) return packet;
  if (scatters(key.kind)) packet += hosts_->index_of(part) * hosts_->ranks_on(host) * n;
  return packet + index * n;
}

// Adds slice `part` of all ranks' sources.
void Packets::add(const OpKey& key, const RankAddresses& places,
                  std::span<std::byte* const> results, int part) {
  sources_.clear();
  for (int r = 0; r < hosts_->ranks(); ++r) sources_.push_back(source(key, places, r, part));
  sum_in_order(key.dtype, sources_, results, key.elements);
}

void Packets::unpack(const OpKey& key, const RankAddresses& places) {
  const auto n = static_cast<size_t>(element_bytes(key));
  if (n == 0 || key.kind == Collective::barrier) return;
  const std::span<const int> own = hosts_->ranks_of(host_);
  const auto copy = [&](int r, std::byte* to) {
    const std::byte* from = source(key, places, r, 0);
    if (from != to) std::memcpy(to, from, n);
  };
  if (key.kind == Collective::all_reduce) {
    add(key, places, places.wholes, 0);
  } else if (key.kind == Collective::all_to_all) {
    for (size_t i = 0; i < own.size(); ++i)
      for (int r = 0; r < hosts_->ranks(); ++r)
        std::memcpy(slice(key, places.slices[i], r), source(key, places, r, own[i]), n);
  } else if (key.kind == Collective::reduce_scatter) {
    for (size_t i = 0; i < own.size(); ++i) add(key, places, {&places.slices[i], 1}, own[i]);
  } else if (is_copy(key.kind)) {
    for (std::byte* whole : places.wholes) copy(key.root, whole);
  } else {
    for (int r = 0; r < hosts_->ranks(); ++r)
      for (std::byte* whole : places.wholes) copy(r, slice(key, whole, r));
  }
}

}  // namespace dstrain
