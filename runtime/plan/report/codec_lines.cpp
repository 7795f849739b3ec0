#include "runtime/plan/report/codec_lines.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "runtime/core/text.h"
#include "runtime/ir/quantized.h"
#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

// Returns the groups of a channel that ranks on the plan's host belong to: the hosts of their ranks, in order.
std::vector<std::vector<int>> groups_here(const Place& place, int32_t channel,
                                          std::span<const int> hosts) {
  const auto host_of = [&](int rank) {
    return hosts[static_cast<size_t>(world_rank(place, place.stage, rank))];
  };
  const int size = ranks_of(place, channel);
  const int apart = channel == replica_group ? place.shard_size() : 1;  // neighbours in a group
  std::vector<std::vector<int>> groups;
  for (int g = 0; g < place.ranks / size; ++g) {
    std::vector<int> group;
    bool here = false;
    for (int i = 0; i < size; ++i) {
      group.push_back(host_of(channel == replica_group ? g + i * apart : g * size + i));
      here = here || group.back() == host_of(place.rank);
    }
    if (here) groups.push_back(std::move(group));
  }
  return groups;
}

// Returns how often the whole tensor of a group's collective leaves the host `here`: around a ring of the hosts, or
// slice by slice.
double times_leaving(OpKind op, const std::vector<int>& group, int here) {
  double slices = 0;
  for (const int sender : group)
    for (const int receiver : group) slices += sender == here && receiver != here;
  if (op == OpKind::all_to_all) return slices / static_cast<double>(group.size());
  const auto hosts = static_cast<double>(std::set<int>(group.begin(), group.end()).size());
  return rule_of(op).ring_passes * (hosts - 1) / hosts;
}

int64_t leaving(const Plan& plan, std::span<const int> hosts) {
  constexpr int64_t kSmallest = 1024;  // bytes; smaller messages do not count
  const Place& place = plan.place;
  const int here = hosts[static_cast<size_t>(world_rank(place, place.stage, place.rank))];
  double total = 0;
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.program.instructions[static_cast<size_t>(issue.instruction)];
    if (!is_collective(op.op) || !is_group(op.channel)) continue;
    const int64_t bytes =
        std::max(plan.program.at(op.reads[0]).bytes(), plan.program.at(op.writes[0]).bytes());
    if (bytes < kSmallest) continue;
    for (const std::vector<int>& group : groups_here(place, op.channel, hosts))
      total += times_leaving(op.op, group, here) * static_cast<double>(bytes);
  }
  return static_cast<int64_t>(total + 0.5);
}

std::string bytes_of(int64_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

}  // namespace

SentBytes sent_bytes(const Plan& plan, std::span<const int> hosts) {
  return {wire_bytes(plan), leaving(plan, hosts)};
}

std::string codec_line(const Job& job, const Plan& plan, std::span<const int> hosts,
                       const PlanInputs& inputs) {
  if (job.quantize == QuantizeConfig{}) return {};
  Job plain = job;
  plain.quantize = {};
  if (!job.shards.parameters) plain.shards = {};
  const Place& place = plan.place;
  const std::vector<RankPlan> stages =
      draft_stage_plans(plain, world_rank(place, place.stage, place.rank), inputs);
  const SentBytes with = sent_bytes(plan, hosts),
                  without = sent_bytes(stages[static_cast<size_t>(place.stage)].train, hosts);
  std::string line;
  if (job.quantize.weights)
    line = fmt::format("parameters travel as int8 in blocks of {}", kQuantizedBlock);
  if (job.quantize.gradients) {
    line += fmt::format("{}gradients as int4 in blocks of {}, in ", line.empty() ? "" : ", ",
                        kInt4Block);
    line += place.factored()
                ? fmt::format("two hops (within groups of {} ranks, then among {} groups)",
                              place.shard_size(), place.replicas())
                : "one hop";
  }
  line += fmt::format("; rank {} sends {} a step, {} without",
                      world_rank(place, place.stage, place.rank), bytes_of(with.rank),
                      bytes_of(without.rank));
  if (without.host > 0)
    line += fmt::format("; its host sends {} a step to others, {} without", bytes_of(with.host),
                        bytes_of(without.host));
  return line;
}

}  // namespace dstrain
