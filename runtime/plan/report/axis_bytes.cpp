#include "runtime/plan/report/axis_bytes.h"

#include <fmt/format.h>

#include <set>
#include <string_view>

#include "runtime/config/axes_text.h"
#include "runtime/core/text.h"
#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

// Returns where the bytes of a channel count.
int64_t& counter_of(AxisBytes& bytes, const Place& place, const Channel& channel) {
  if (!channel.is_group()) return bytes.pipe;
  const auto differs = [&](Axis axis) {
    return channel.group.has(axis) && place.ranks_in(axis) > 1;
  };
  if (differs(Axis::replica) || differs(Axis::shard)) return bytes.data;
  return differs(Axis::sequence) ? bytes.sequence : bytes.tensor;
}

}  // namespace

AxisBytes bytes_by_axis(const Plan& plan) {
  AxisBytes bytes;
  Plan part = plan;  // with the collectives of one channel
  for (size_t c = 0; c < plan.comm_channels.size(); ++c) {
    part.order.clear();
    for (const Issue& issue : plan.order) {
      const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
      if (is_collective(op.op) && static_cast<size_t>(op.channel) == c) part.order.push_back(issue);
    }
    if (!part.order.empty())
      counter_of(bytes, plan.place, plan.comm_channels[c]) += wire_bytes(part);
  }
  return bytes;
}

std::string axis_bytes_text(const Plan& plan) {
  const Place& place = plan.place;
  const AxisRanks ranks{place.stages(), place.ranks_in(kSampleAxes), place.ranks_in(Axis::sequence),
                        place.ranks_in(Axis::tensor)};
  if (!has_model_axes(ranks)) return {};
  const AxisBytes bytes = bytes_by_axis(plan);
  std::string text;
  const auto line = [&](int count, std::string_view among, int64_t sent) {
    if (count > 1)
      text += fmt::format("sent a step among {} {}: {}\n", count, among,
                          bytes_text(static_cast<double>(sent)));
  };
  line(ranks.data, "data-parallel ranks", bytes.data);
  line(ranks.tensor, "tensor ranks", bytes.tensor);
  line(ranks.sequence, "sequence ranks", bytes.sequence);
  line(ranks.stages, "pipeline stages", bytes.pipe);
  return text;
}

std::string tensor_hosts_warning(const Place& place, std::span<const int> hosts) {
  const int tensor = place.ranks_in(Axis::tensor);
  for (int rank = 0; rank < place.ranks_in(kAllAxes); rank += tensor) {
    const auto group = hosts.subspan(static_cast<size_t>(rank), static_cast<size_t>(tensor));
    const size_t count = std::set<int>(group.begin(), group.end()).size();
    if (count > 1)
      return fmt::format(
          "the tensor group of ranks {} to {} is on {} hosts: its ranks exchange activations "
          "several times in every layer, between hosts too. Let the ranks of each host be a "
          "multiple of tensor_parallel.autotp_size ({})",
          rank, rank + tensor - 1, count, tensor);
  }
  return {};
}

}  // namespace dstrain
