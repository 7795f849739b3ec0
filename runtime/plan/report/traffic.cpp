#include "runtime/plan/report/traffic.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "runtime/config/axes_text.h"
#include "runtime/config/family/family.h"
#include "runtime/config/sparse_gradients.h"
#include "runtime/config/text.h"
#include "runtime/core/text.h"
#include "runtime/ir/quantized.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/codecs/codecs.h"
#include "runtime/plan/mesh.h"

namespace dstrain {
namespace {

// Returns where the bytes of a channel count.
int64_t& counter_of(AxisBytes& bytes, const Place& place, const Channel& channel) {
  if (!channel.is_group()) return bytes.pipe;
  const auto differs = [&](Axis axis) {
    return channel.group.has(axis) && place.ranks_in(axis) > 1;
  };
  if (channel.group == Axis::expert) return bytes.expert;
  if (differs(Axis::replica) || differs(Axis::shard) || differs(Axis::expert)) return bytes.data;
  return differs(Axis::sequence) ? bytes.sequence : bytes.tensor;
}

// Returns the groups of a channel that ranks on the plan's host belong to: the hosts of their ranks, in order.
std::vector<std::vector<int>> groups_here(const Place& place, Axes axes,
                                          std::span<const int> hosts) {
  const auto host_of = [&](const Place& at) { return hosts[static_cast<size_t>(world_rank(at))]; };
  std::vector<std::vector<int>> groups;
  constexpr Axes stage = kStateAxes | Axis::tensor;
  for (int r = 0; r < place.ranks_in(stage); ++r) {
    const Place first = place.moved(stage, r);
    if (first.rank_in(axes) != 0) continue;
    std::vector<int> group;
    for (int i = 0; i < place.ranks_in(axes); ++i) group.push_back(host_of(first.moved(axes, i)));
    if (std::ranges::find(group, host_of(place)) != group.end()) groups.push_back(std::move(group));
  }
  return groups;
}

// Returns how often the whole tensor of a group's collective leaves the host `here`: around a ring of the hosts, or
// slice by slice.
double times_leaving(OpKind op, const std::vector<int>& group, int here) {
  double slices = 0;
  for (const int sender : group)
    for (const int receiver : group) slices += sender == here && receiver != here;
  const CollectiveTraits& traits = traits_of(*rule_of(op).collective);
  if (traits.sliced_source && traits.sliced_result)
    return slices / static_cast<double>(group.size());
  const auto hosts = static_cast<double>(std::set<int>(group.begin(), group.end()).size());
  return traits.ring_passes * (hosts - 1) / hosts;
}

int64_t leaving(const Plan& plan, std::span<const int> hosts) {
  constexpr int64_t kSmallest = 1024;  // bytes; smaller messages do not count
  const Place& place = plan.place;
  const int here = hosts[static_cast<size_t>(world_rank(place))];
  double total = 0;
  for (const Issue& issue : plan.order) {
    const Instruction& op = plan.instruction_of(issue);
    if (!is_collective(op.op) || !plan.comm_channel(op).is_group()) continue;
    const int64_t bytes = payload_bytes(plan.program, op);
    if (bytes < kSmallest) continue;
    for (const std::vector<int>& group : groups_here(place, plan.comm_channel(op).group, hosts))
      total += times_leaving(op.op, group, here) * static_cast<double>(bytes);
  }
  return static_cast<int64_t>(total + 0.5);
}

std::string bytes_of(int64_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

// Returns what travels as factors.
std::string factors_text(const Job& job, const Plan& plan) {
  int64_t matrices = 0, values = 0, largest = 0;
  for (const Instruction& op : plan.program.instructions) {
    if (op.op != OpKind::expand_factors) continue;
    ++matrices;
    values += plan.program.at(op.writes[0]).shape.elements();
    largest = std::max(largest, plan.program.at(op.reads[0]).shape[0]);
  }
  return fmt::format("{}: {} ({} values) travel as factors of rank {}, {} values whole",
                     job.hook.kind == HookKind::power_sgd ? "powerSGD" : "batched_powerSGD",
                     counted(matrices, "gradient"), values, largest,
                     values_sent_whole(plan.program));
}

// Returns how the gradient of the token embedding travels, and why.
std::string rows_text(const Job& job, const Plan& plan) {
  const SparseGradientBytes bytes = sparse_gradient_bytes(job);
  const TokenTable table = job.model.measures().token_table.value();
  if (table.frozen) return "sparse_gradients: the token embedding is frozen and has no gradient";
  std::string line = "sparse_gradients: the token embedding's gradient travels ";
  if (table.shared)
    return line + "as the whole table, because the head is tied to it and its gradient is dense";
  line += sends_token_rows(job) ? "as rows of tokens" : "as the whole table";
  return line + fmt::format(": rows take {} a step, the table {}; rank {} sends {} a step in all",
                            bytes_of(bytes.rows), bytes_of(bytes.table), plan.place.rank(),
                            bytes_of(wire_bytes(plan)));
}

// Returns which ranks have weights of their own with post_localSGD, and what their average sends.
std::string local_text(const Job& job, const Plan& plan, std::span<const int> hosts) {
  const int groups = local_groups(job);
  if (groups == 1)
    return "post_localSGD: all ranks are on one host and add their gradients, so each step is an "
           "ordinary one (post_local_gradient_allreduce false: each rank is alone)";
  const int ranks = job.data_ranks() / groups;
  std::string line = fmt::format(
      "post_localSGD: {} groups of {} update weights of their own, which are averaged every "
      "{} updates; rank {} sends {} in such a step",
      groups, counted(ranks, "rank"), job.hook.period, plan.place.rank(),
      bytes_of(wire_bytes(plan)));
  if (const int64_t leaves = leaving(plan, hosts); leaves > 0)
    line += fmt::format(", its host {} to others", bytes_of(leaves));
  return line;
}

// Returns the keys of the job that change nothing where no rank has a peer to send to.
std::vector<std::string_view> keys_for_peers(const Job& job) {
  std::vector<std::string_view> keys;
  if (job.quantize.weights) keys.emplace_back("zero_quantized_weights");
  if (job.quantize.gradients) keys.emplace_back("zero_quantized_gradients");
  if (job.hook.kind != HookKind::none) keys.emplace_back("dstrain.comm_hook");
  if (job.sparse_gradients) keys.emplace_back("sparse_gradients");
  return keys;
}

// Returns how parameters travel that are quantized.
std::string weights_text(const Place& place) {
  std::string text = fmt::format("parameters travel as int8 in blocks of {}", kQuantizedBlock);
  if (place.replicas_hold() && place.shard_size() == 1)
    text += " once a step, as each rank has all of them";
  return text;
}

}  // namespace

AxisBytes bytes_by_axis(const Plan& plan) {
  AxisBytes bytes;
  Plan part = plan;  // with the collectives of one channel
  for (size_t c = 0; c < plan.comm_channels.size(); ++c) {
    part.order.clear();
    for (const Issue& issue : plan.order) {
      const Instruction& op = plan.instruction_of(issue);
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
  const int experts = place.ranks_in(Axis::expert);
  if (!has_model_axes(ranks) && experts == 1) return {};
  const AxisBytes bytes = bytes_by_axis(plan);
  std::string text;
  const auto line = [&](int count, std::string_view among, int64_t sent) {
    if (count > 1)
      text += fmt::format("sent a step among {} {}: {}\n", count, among,
                          bytes_text(static_cast<double>(sent)));
  };
  line(ranks.data, "data-parallel ranks", bytes.data);
  line(experts, "expert ranks where choices are even", bytes.expert);
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

SentBytes sent_bytes(const Plan& plan, std::span<const int> hosts) {
  return {wire_bytes(plan), leaving(plan, hosts)};
}

std::string step_kinds_text(const Job& job, const RankPlan& plans) {
  if (plans.other.empty()) return {};
  std::string text = "training plans, by steps that were not skipped:\n";
  for (const Plan* plan : plans.training())
    text +=
        fmt::format("  {:<16}{}: {} instructions, {} sent a step\n", name_of(plan->kind),
                    steps_text(job, plan->kind), plan->order.size(), bytes_of(wire_bytes(*plan)));
  return text;
}

std::string codec_line(const Job& job, const Plan& plan, std::span<const int> hosts,
                       const PlanInputs& inputs) {
  if (job.state_ranks() == 1) {
    const std::vector<std::string_view> keys = keys_for_peers(job);
    if (keys.empty()) return {};
    return fmt::format(
        "no effect of {}: one {}rank sends neither parameters nor gradients to others",
        fmt::join(keys, ", "), has_model_axes(axis_ranks(job)) ? "data-parallel " : "");
  }
  if (job.sparse_gradients) return rows_text(job, plan);
  if (job.hook.kind == HookKind::post_local_sgd) return local_text(job, plan, hosts);
  const bool hook = job.hook.kind != HookKind::none;
  if (job.quantize == QuantizeConfig{} && !hook) return {};
  Job plain = job;
  plain.quantize = {};
  plain.hook = {};
  if (!job.shards.parameters) plain.shards = {};
  const Place& place = plan.place;
  const std::vector<RankPlan> stages = draft_stage_plans(plain, world_rank(place), inputs);
  const SentBytes with = sent_bytes(plan, hosts),
                  without = sent_bytes(stages[static_cast<size_t>(place.stage())].train, hosts);
  std::string line;
  if (job.quantize.weights) line = weights_text(place);
  if (job.quantize.gradients) {
    line += fmt::format("{}gradients as int4 in blocks of {}{}, in ", line.empty() ? "" : ", ",
                        kInt4Block, job.quantize.feedback ? " with error feedback" : "");
    line += place.factored()
                ? fmt::format("two hops (within groups of {} ranks, then among {} groups)",
                              place.shard_size(), place.replicas())
                : "one hop";
  }
  if (hook) line = factors_text(job, plan);
  line += fmt::format("; rank {} sends {} a step, {} without", world_rank(place),
                      bytes_of(with.rank), bytes_of(without.rank));
  if (without.host > 0)
    line += fmt::format("; its host sends {} a step to others, {} without", bytes_of(with.host),
                        bytes_of(without.host));
  return line;
}

}  // namespace dstrain
