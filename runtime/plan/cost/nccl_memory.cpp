#include "runtime/plan/cost/nccl_memory.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/comm/devices/nccl_blocks.h"
#include "runtime/core/text.h"

namespace dstrain {
namespace {

// A connection from one rank to another has a buffer for each of NCCL's protocols in each channel (sources: init.cc,
// transport/p2p.cc and the constants of device.h of NCCL 2.18 to 2.28):
// simple: NCCL_BUFFSIZE, 4 MiB by default; LL: 512 threads x 8 lines x 16 bytes x 8 steps; LL128: 640 threads x 120 elements
// x 8 bytes x 8 steps.
constexpr int64_t kSteps = 8;
constexpr int64_t kSimpleBytes = int64_t{4} << 20;
constexpr int64_t kLlBytes = 512 * 8 * 16 * kSteps;
constexpr int64_t kLl128Bytes = 640 * 120 * 8 * kSteps;
// Each allocation is shared by its handle, and is whole pages of 2 MiB: the receiver's has the buffers (and a header), the
// sender's a header alone. An all-to-all on 8 H100 shows allocations of just these, 10485760 and 2097152 bytes, for each
// peer and channel (github.com/NVIDIA/nccl/issues/1685). Where a receiver reads over NVLink the simple buffer is the
// sender's, which makes 6 and 6 MiB: the same sum.
constexpr int64_t kPage = int64_t{2} << 20;
constexpr int64_t kHeaderBytes = 4096;

constexpr int64_t pages(int64_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

// What a rank holds for one peer in one channel, to send to it and to receive from it.
constexpr int64_t kPeerBytes =
    pages(kHeaderBytes + kSimpleBytes + kLlBytes + kLl128Bytes) + pages(kHeaderBytes);

// The other collectives in NVLink's switch (NVLS, groups of more than two ranks) have, for each rank and channel, a
// buffer of 8 steps of 128 KiB each way.
constexpr int64_t kSwitchBytes = 2 * kSteps * (int64_t{128} << 10);

std::string name_of_group(const Channel& channel) {
  if (!channel.is_group()) return "a link of the pipeline";
  if (channel.group == kStateAxes) return "ranks with the same parameters";
  if (channel.group == kShardAxes) return "shard group";
  if (channel.group == Axes(Axis::replica)) return "replica group";
  if (channel.group == Axes(Axis::expert)) return "expert group";
  if (channel.group == Axes(Axis::sequence)) return "sequence group";
  if (channel.group == Axes(Axis::tensor)) return "tensor group";
  return channel.group == (kStateAxes | Axis::tensor) ? "ranks with parameters in common"
                                                      : "another group";
}

// Returns whether ranks of a group add, and not gather alone, as those of shard and replica groups do with parameters.
bool adds(const Job& job, const Channel& channel) {
  const bool of_shards = channel.group == kShardAxes || channel.group == Axes(Axis::replica) ||
                         channel.group == (kShardAxes | Axis::tensor);
  return !of_shards || job.hook.kind == HookKind::post_local_sgd;
}

NcclConnections connections_of(const Job& job, const Channel& channel) {
  if (!channel.is_group()) return {.messages = true};
  const bool all_to_all = job.quantize.gradients || is_one_bit(job.optimizer.kind) ||
                          channel.group == Axes(Axis::sequence);
  return {.rings = true,
          .peers = all_to_all || (job.rank_order_sums && adds(job, channel)),
          .messages = false};
}

}  // namespace

int64_t nccl_bytes(int ranks, const NcclConnections& connections) {
  if (ranks < 2) return 0;
  const int64_t channels = most_nccl_blocks(ranks), peers = ranks - 1;
  int64_t bytes = 0;
  // Two neighbours, of a ring and of the trees, which are chains within a host.
  if (connections.rings) bytes += std::min<int64_t>(2, peers) * channels * kPeerBytes;
  if (connections.rings && ranks > 2) bytes += ranks * channels * kSwitchBytes;
  // Sends and receives have connections of their own.
  if (connections.peers || connections.messages) bytes += peers * channels * kPeerBytes;
  return bytes;
}

std::vector<NcclGroup> nccl_groups(const Job& job, const Place& place) {
  std::vector<NcclGroup> groups;
  for (const Channel& channel : channels_of(place, job.pipeline.schedule)) {
    const int ranks = ranks_of(place, channel);
    if (ranks < 2) continue;
    NcclConnections connections = connections_of(job, channel);
    // A communicator of two ranks sends a message each way when it is made.
    if (ranks == 2) connections.messages = true;
    groups.push_back({name_of_group(channel), ranks, connections, nccl_bytes(ranks, connections)});
  }
  return groups;
}

int64_t nccl_bytes_to_come(const Job& job, const Place& place) {
  int64_t bytes = 0;
  for (const NcclGroup& group : nccl_groups(job, place))
    bytes += group.bytes - nccl_bytes(group.ranks, {.messages = group.connections.messages});
  return bytes;
}

std::string nccl_memory_text(const Job& job, const Place& place) {
  const std::vector<NcclGroup> groups = nccl_groups(job, place);
  if (groups.empty()) return {};
  int64_t all = 0;
  std::vector<std::string> texts;
  for (const NcclGroup& group : groups) {
    all += group.bytes;
    texts.push_back(fmt::format("{} ({}) {}", group.name, group.ranks,
                                bytes_text(static_cast<double>(group.bytes))));
  }
  return fmt::format("on GPUs NCCL's buffers take up to {} of each, besides: {}\n",
                     bytes_text(static_cast<double>(all)), fmt::join(texts, ", "));
}

}  // namespace dstrain
