#include "runtime/plan/report/print.h"

#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "runtime/config/axes_text.h"
#include "runtime/config/text.h"
#include "runtime/core/text.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/codecs/codecs.h"
#include "runtime/plan/divide.h"
#include "runtime/plan/report/text_table.h"
#include "runtime/plan/report/traffic.h"

namespace dstrain {
namespace {

// Returns a name without the prefixes that the table repeats: "ln1.weight" for "param:blocks.0.ln1.weight".
std::string short_name(const Program& program, BufferId id, const std::string& group) {
  if (id == kNone) return {};
  std::string name = program.at(id).name;
  if (const size_t colon = name.find(':'); name.starts_with("param:") && colon != std::string::npos)
    name = name.substr(colon + 1);
  const std::string prefix = group + ".";
  for (size_t at : {size_t{0}, name.find(':') + 1,
                    size_t{2}})  // "blocks.0.x", "grad:blocks.0.x", "d_blocks.0.x"
    if (at < name.size() && std::string_view(name).substr(at).starts_with(prefix)) {
      name.erase(at, prefix.size());
      break;
    }
  return name;
}

std::string operand_list(const Program& program, const std::vector<BufferId>& ids,
                         const std::string& group) {
  std::string text;
  for (BufferId id : ids) {
    const std::string name = short_name(program, id, group);
    if (!name.empty()) text += (text.empty() ? "" : ", ") + name;
  }
  return text;
}

std::string_view when_text(When when) {
  constexpr std::string_view texts[] = {"start", "each", "last", "end"};
  return texts[static_cast<int>(when)];
}

// Returns how long sharded parameters stay gathered; empty if none are sharded.
std::string gathers_text(const Plan& plan) {
  const Program& p = plan.program;
  int64_t kept = 0, kept_elements = 0, gathers = 0, elements = 0;
  std::set<BufferId> sources;
  BufferId newest = kNone;
  bool packed = false;
  for (const Instruction& op : p.instructions) {
    const BufferId gathered = gathered_from(p, op);
    if (gathered == kNone) continue;
    if (std::exchange(newest, gathered) == gathered) continue;  // another block of the same gather
    packed = !is_collective(op.op);  // it unpacks what a gather has brought
    sources.insert(p.root(op.reads[0]));
    (op.when == When::step_begin ? kept : gathers) += 1;
    (op.when == When::step_begin ? kept_elements : elements) += p.at(gathered).shape.elements();
  }
  if (sources.empty()) return {};
  if (packed)
    return fmt::format(
        "each rank gets all parameters as int8 once a step: {} of {} units ({} elements) are "
        "unpacked once and stay for the step; the others {} times ({} elements) a micro-batch\n",
        kept, sources.size(), kept_elements, gathers, elements);
  return fmt::format(
      "parameters are sharded: {} of {} units ({} elements) are gathered once and stay for the "
      "step; "
      "the others in {} gathers ({} elements) a micro-batch\n",
      kept, sources.size(), kept_elements, gathers, elements);
}

// Returns the groups of a factored data-parallel group, with the numbers of the ranks in the world.
std::string groups_text(const Place& place) {
  if (place.replicas_hold() && place.shard_size() == 1 && place.replicas() > 1)
    return fmt::format("{} data-parallel ranks are replicas of 1: each has all parameters\n",
                       place.replicas());
  if (!place.factored()) return {};
  std::vector<int> replicas;
  for (int r = 0; r < place.replicas(); ++r)
    replicas.push_back(world_rank(place.moved(Axis::replica, r)));
  std::vector<int> shard;
  for (int r = 0; r < place.shard_size(); ++r)
    shard.push_back(world_rank(place.moved(kShardAxes, r)));
  const bool in_a_row = place.ranks_in(Axis::tensor) == 1;
  return fmt::format(
      "{} data-parallel ranks are {} {} of {}: rank {} is number {} of {} {}, shard group {}, "
      "replica group {}\n",
      place.ranks(), place.replicas(), place.replicas_hold() ? "replicas" : "groups",
      place.shard_size(), world_rank(place), place.shard_rank(),
      place.replicas_hold() ? "replica" : "group", place.replica(),
      in_a_row ? fmt::format("{} to {}", shard.front(), shard.back())
               : fmt::format("{}", fmt::join(shard, ", ")),
      fmt::join(replicas, ", "));
}

// Returns whether ranks add anything: gradients, or activations of layers that they divide.
bool adds_over_ranks(const Place& place) {
  return place.ranks() > 1 || place.ranks_in(Axis::tensor) > 1;
}

// Returns which sum over ranks the run uses; empty where ranks add nothing.
std::string sums_text(const Plan& plan) {
  if (!adds_over_ranks(plan.place)) return {};
  return plan.rank_order_sums ? "sums over ranks: in rank order in f32, rounded once\n"
                              : "sums over ranks: NCCL's own, in its order and with its rounding, "
                                "where every rank has a GPU\n";
}

// Returns how the ranks of a run are divided; empty where they have different samples alone.
std::string axes_line(const Place& place) {
  const AxisRanks ranks{place.stages(), place.ranks_in(kSampleAxes), place.ranks_in(Axis::sequence),
                        place.ranks_in(Axis::tensor)};
  return has_model_axes(ranks) ? axes_text(ranks) + "\n" : "";
}

// Returns the layers of a pipeline's stage; empty without a pipeline.
std::string stage_text(const Plan& plan) {
  if (plan.place.stages() == 1) return {};
  return fmt::format("stage {} of {}: layers {}\n", plan.place.stage(), plan.place.stages(),
                     layers_text(plan.program.sublayers, runs_of(plan.program)));
}

// Returns " in shard group" for a collective of that group, and the like; nothing for those of all ranks.
std::string_view where_text(const Plan& plan, const Instruction& op) {
  if (!is_collective(op.op)) return "";  // no communicator has the channels of copies and drives
  const Axes group = plan.comm_channel(op).group;
  return group == kShardAxes || group == (kShardAxes | Axis::tensor) ? " in shard group"
         : group == Axis::replica                                    ? " in replica group"
         : group == Axis::expert                                     ? " in expert group"
         : group == Axis::sequence                                   ? " in sequence group"
         : group == Axis::tensor                                     ? " in tensor group"
                                                                     : "";
}

}  // namespace

std::string memory_text(const MemoryTable& memory) {
  std::string text;
  for (const Space space : {Space::device, Space::host, Space::disk}) {
    if (space != Space::device && memory.total(space) == 0) continue;
    text += space == Space::device ? "memory at the peak\n"
            : space == Space::host ? "of the host's memory, besides\n"
                                   : "on disk, besides\n";
    const auto row = [&text](std::string_view name, int64_t bytes) {
      text += fmt::format("  {:<14}{:>16} bytes {:>10}\n", name, bytes,
                          bytes_text(static_cast<double>(bytes)));
    };
    for (int c = 0; c < kMemoryClasses; ++c)
      row(name_of(static_cast<MemoryClass>(c)), memory.peak_of(space)[static_cast<size_t>(c)]);
    row("total", memory.total(space));
  }
  return text;
}

std::string plan_to_text(const RankPlan& rank, const std::string& title) {
  const Plan& plan = rank.train;
  const Program& p = plan.program;
  std::string text =
      fmt::format("{} | {} | {} | {} instructions a step | peak {} | {} sent a step\n\n", title,
                  name_of(p.dtype), counted(plan.micro_batches, "micro-batch", "es"),
                  plan.order.size(), bytes_text(static_cast<double>(rank.memory.total())),
                  bytes_text(static_cast<double>(wire_bytes(plan))));
  text += axes_line(plan.place) + stage_text(plan) + groups_text(plan.place) + sums_text(plan) +
          axis_bytes_text(plan) + memory_text(rank.memory) + gathers_text(plan) + "\n";
  std::vector<std::vector<std::string>> rows{
      {"queue", "when", "instruction", "group", "reads", "writes", "bytes", "GFLOP"}};
  for (const Instruction& op : p.instructions) {
    const Cost cost = cost_of(p, op);
    const std::string& group = p.group_name(op);
    rows.push_back({std::string(name_of(queue_of(p, op))), std::string(when_text(op.when)),
                    fmt::format("{}{}", name_of(op.op), where_text(plan, op)), group,
                    operand_list(p, op.reads, group), operand_list(p, op.writes, group),
                    bytes_text(cost.bytes),
                    cost.flops > 0 ? fmt::format("{:.2f}", cost.flops * 1e-9) : ""});
  }
  return text + text_table(rows, 2);
}

namespace {

nlohmann::ordered_json instructions_json(const Plan& plan) {
  std::vector<nlohmann::ordered_json> rows;
  for (const Instruction& op : plan.program.instructions) {
    const Cost cost = cost_of(plan.program, op);
    rows.push_back({{"op", name_of(op.op)},
                    {"group", plan.program.group_name(op)},
                    {"queue", name_of(queue_of(plan.program, op))},
                    {"bytes", static_cast<int64_t>(cost.bytes)},
                    {"flops", cost.flops}});
  }
  auto instructions = nlohmann::ordered_json::array();
  for (const Issue& issue : plan.order)
    instructions.push_back(rows[static_cast<size_t>(issue.instruction)]);
  return instructions;
}

nlohmann::ordered_json bytes_json(const AxisBytes& bytes) {
  nlohmann::ordered_json object = {{"data", bytes.data},
                                   {"tensor", bytes.tensor},
                                   {"sequence", bytes.sequence},
                                   {"pipe", bytes.pipe}};
  if (bytes.expert > 0) object["expert"] = bytes.expert;
  return object;
}

}  // namespace

std::string plan_to_json(const RankPlan& rank, const Assumptions& assumed) {
  const Plan& plan = rank.train;
  const auto memory_of = [&rank](Space space) {
    nlohmann::ordered_json memory;
    for (int c = 0; c < kMemoryClasses; ++c)
      memory[std::string(name_of(static_cast<MemoryClass>(c)))] =
          rank.memory.peak_of(space)[static_cast<size_t>(c)];
    memory["total"] = rank.memory.total(space);
    return memory;
  };
  nlohmann::ordered_json object;
  const Place& place = plan.place;
  object["ranks"] = place.ranks_in(kAllAxes);
  object["rank"] = world_rank(place);
  if (!assumed.empty()) object["assumed"] = assumed;
  if (place.stages() > 1) {
    object["stages"] = place.stages();
    object["stage"] = place.stage();
    object["layers"] = layers_text(plan.program.sublayers, runs_of(plan.program));
  }
  if (place.ranks_in(Axis::expert) > 1) object["expert_ranks"] = place.ranks_in(Axis::expert);
  if (place.ranks_in(Axis::sequence) > 1) object["sequence_ranks"] = place.ranks_in(Axis::sequence);
  if (place.ranks_in(Axis::tensor) > 1) object["tensor_ranks"] = place.ranks_in(Axis::tensor);
  if (place.factored()) object["shard_ranks"] = place.shard_size();
  object["memory"] = memory_of(Space::device);
  object["host"] = memory_of(Space::host);
  object["disk"] = memory_of(Space::disk);
  if (adds_over_ranks(place)) object["sums"] = plan.rank_order_sums ? "rank_order" : "nccl";
  object["comm_bytes"] = wire_bytes(plan);
  object["comm_bytes_by_axis"] = bytes_json(bytes_by_axis(plan));
  object["instructions"] = instructions_json(plan);
  for (const Plan& other : rank.other)
    object["other_steps"].push_back({{"kind", name_of(other.kind)},
                                     {"comm_bytes", wire_bytes(other)},
                                     {"instructions", instructions_json(other)}});
  return object.dump(1) + "\n";
}

}  // namespace dstrain
