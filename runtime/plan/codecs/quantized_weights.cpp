// qwZ: parameters travel as int8 (runtime/ir/quantized.h). Every rank computes with what it unpacks, its own slice
// included, so that all ranks have the same values. Masters and the slices that ranks hold stay as they are.
#include <algorithm>
#include <iterator>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/ir/quantized.h"
#include "runtime/plan/codecs/codecs.h"

namespace dstrain {
namespace {

class QuantizeGathers {
 public:
  QuantizeGathers(Program& program, Place place)
      : program_(program),
        place_(place),
        replicas_(place.replicas_hold() && place.replicas() > 1),
        axes_(axes_of_state(program)) {}

  void run() {
    if (replicas_) take_transfers();
    find_first_reads();
    std::vector<Instruction> list, old = std::exchange(program_.instructions, {});
    std::vector<std::vector<Instruction>> before(old.size() + 1);
    for (size_t i = 0; i < old.size(); ++i) {
      for (Instruction& op : before[i]) list.push_back(std::move(op));
      if (gathers_parameters(old[i]))
        replace(old[i], list, before);
      else
        list.push_back(std::move(old[i]));
    }
    // Replicas exchange packed slices before anything is gathered.
    add_exchanges();
    std::ranges::move(list, std::back_inserter(program_.instructions));
  }

 private:
  // What brings the packed shard of a unit.
  struct Exchange {
    std::vector<Instruction> hops{};  // transfers of the rank's slice from another space
    std::vector<Instruction> ops{};
  };

  // Takes the transfers that bring slices to the gathers out of the program: with a shard, gathers do not read them.
  void take_transfers() {
    std::unordered_map<BufferId, BufferId>
        target;  // of what passes a buffer: the slice that a gather reads
    for (const Instruction& op : program_.instructions) {
      if (!gathers_parameters(op)) continue;
      const BufferId slice = program_.root(op.reads[0]);
      if (program_.at(slice).lifetime != Lifetime::persistent) target[slice] = slice;
    }
    std::vector<Instruction> rest;
    for (size_t i = program_.instructions.size(); i-- > 0;) {
      Instruction& op = program_.instructions[i];
      const bool transfer = op.op == OpKind::copy || op.op == OpKind::swap_in;
      const auto found = transfer ? target.find(program_.root(op.writes[0])) : target.end();
      if (found == target.end()) {
        rest.push_back(std::move(op));
        continue;
      }
      const BufferId slice = found->second, from = program_.root(op.reads[0]);
      if (program_.at(from).lifetime != Lifetime::persistent) target[from] = slice;
      hops_[slice].push_back(std::move(op));  // the last one first
    }
    std::ranges::reverse(rest);
    program_.instructions = std::move(rest);
  }

  // Appends what brings all shards. A slice has its last hop while the unit before is packed and sent, its first one a
  // unit earlier.
  void add_exchanges() {
    constexpr int kHops = 2;
    const auto count = static_cast<int>(exchanges_.size());
    for (int u = -kHops; u < count; ++u) {
      for (int last = kHops; last-- > 0;) {
        const int other = u + 1 + last;
        if (other < 0 || other >= count) continue;
        std::vector<Instruction>& hops = exchanges_[static_cast<size_t>(other)].hops;
        if (static_cast<int>(hops.size()) > last)
          program_.instructions.push_back(std::move(hops[static_cast<size_t>(last)]));
      }
      if (u >= 0)
        std::ranges::move(exchanges_[static_cast<size_t>(u)].ops,
                          std::back_inserter(program_.instructions));
    }
  }

  bool gathers_parameters(const Instruction& op) const {
    if (op.op != OpKind::all_gather || op.when == When::step_end) return false;
    const BufferId root = program_.root(op.writes[0]);
    const Buffer& gathered = program_.at(root);
    return axes_.contains(root) && gathered.lifetime != Lifetime::persistent &&
           gathered.dtype != DType::u8;
  }

  // Finds where each gathered buffer is read first, and the end of the step's start.
  void find_first_reads() {
    first_read_.assign(program_.buffers.size(), program_.instructions.size());
    for (size_t i = program_.instructions.size(); i-- > 0;) {
      if (program_.instructions[i].when != When::step_begin) end_of_start_ = i;
      for (const BufferId id : program_.instructions[i].reads)
        if (id != kNone) first_read_[static_cast<size_t>(program_.root(id))] = i;
    }
  }

  BufferId add_packed(std::string name, int64_t parts, int64_t bytes, MemoryClass memory,
                      Lifetime lifetime) {
    return program_.add_buffer({.name = std::move(name),
                                .shape = {parts, bytes},
                                .dtype = DType::u8,
                                .memory = memory,
                                .lifetime = lifetime});
  }

  // Appends what brings the packed slices of all ranks to `list`, and what unpacks them to `before` the first use.
  void replace(const Instruction& gather, std::vector<Instruction>& list,
               std::vector<std::vector<Instruction>>& before) {
    const BufferId gathered = gather.writes[0];
    const Axes axes = axes_.at(program_.root(gathered)), within = within_replica(axes);
    const int64_t ranks = place_.ranks_in(axes), shard_ranks = place_.ranks_in(within);
    const std::string name = program_.at(gathered).name.substr(sizeof("gathered:") - 1);
    const int64_t bytes = quantized_bytes(program_.at(gather.reads[0]).shape.elements());
    Instruction op = gather;
    BufferId packed = kNone;
    if (replicas_ && shard_ranks == 1)
      packed = shard_of(gather, bytes);  // it has all slices
    else
      packed = add_packed("quantized:" + name, ranks, bytes, MemoryClass::communication,
                          Lifetime::micro);
    if (replicas_ && shard_ranks > 1) {
      const BufferId shard = shard_of(gather, bytes);
      const int64_t block = shard_ranks * bytes;
      op.channel = channel_of(place_, within);
      for (int64_t b = 0; b < place_.replicas(); ++b) {
        op.reads = {program_.view(shard, b * bytes, bytes)};
        op.writes = {program_.view(packed, b * block, block)};
        list.push_back(op);
      }
    } else if (!replicas_) {
      const BufferId mine = program_.view(packed, place_.rank_in(axes) * bytes, bytes);
      op.op = OpKind::quantize;
      op.writes = {mine};
      list.push_back(op);
      op.op = OpKind::all_gather;
      op.reads = {mine};
      op.writes = {packed};
      list.push_back(op);
    }
    op.op = OpKind::dequantize;
    op.channel = kStateChannel;
    op.reads = {packed};
    op.writes = {gathered};
    // What is gathered for the whole step is unpacked at the end of the step's start, unless something there reads
    // it: in a pipeline the stage that has a copy of the parameters is sent them.
    const size_t use = first_read_[static_cast<size_t>(gathered)];
    before[gather.when == When::step_begin ? std::min(end_of_start_, use) : use].push_back(
        std::move(op));
  }

  // Returns the packed slices of the replica group, which are exchanged once in a step.
  BufferId shard_of(const Instruction& gather, int64_t bytes) {
    const std::string& params = program_.at(gather.reads[0]).name;
    const std::string name = "shard:" + params.substr(params.find(':') + 1);
    if (const BufferId known = program_.find(name); known != kNone) return known;
    const BufferId shard =
        add_packed(name, place_.replicas(), bytes, MemoryClass::parameters, Lifetime::step);
    const BufferId mine = program_.view(shard, place_.replica() * bytes, bytes);
    Exchange exchange;
    if (const auto found = hops_.find(program_.root(gather.reads[0])); found != hops_.end()) {
      exchange.hops = std::move(found->second);
      for (Instruction& hop : exchange.hops) {
        hop.when = When::step_begin;
        program_.at(program_.root(hop.writes[0])).lifetime = Lifetime::step;
      }
    }
    Instruction op{.op = OpKind::quantize,
                   .when = When::step_begin,
                   .reads = {gather.reads[0]},
                   .writes = {mine},
                   .group = gather.group};
    exchange.ops.push_back(op);
    op.op = OpKind::all_gather;
    op.reads = {mine};
    op.writes = {shard};
    op.channel = channel_of(place_, Axis::replica);
    exchange.ops.push_back(std::move(op));
    exchanges_.push_back(std::move(exchange));
    return shard;
  }

  Program& program_;
  const Place place_;
  const bool replicas_;                            // each replica has all parameters, packed
  const std::unordered_map<BufferId, Axes> axes_;  // of parameters and gathered ones
  std::vector<size_t> first_read_;                 // of each buffer, in the list as it was
  size_t end_of_start_ = 0;  // the first instruction that is not of the step's start
  std::unordered_map<BufferId, std::vector<Instruction>> hops_;  // by the slice that they bring
  std::vector<Exchange> exchanges_;
};

}  // namespace

void quantize_gathers(Program& program, const Job& job, Place place, const Residency& residency) {
  if (job.quantize.weights && residency.parameters != Held::whole)
    QuantizeGathers(program, place).run();
}

std::unordered_map<BufferId, Axes> axes_of_state(const Program& program) {
  std::unordered_map<BufferId, Axes> axes;
  for (const Unit& unit : program.units) {
    const UnitBuffers& b = unit.buffers;
    for (const BufferId id : {b.values.id, b.gradients.id, b.micro_gradients.id, b.wire.id})
      if (id != kNone) axes[id] = unit.axes;
  }
  for (const Buffer& b : program.buffers) {
    if (b.parameter < 0 || b.parent == kNone) continue;
    const Parameter& p = program.parameters[static_cast<size_t>(b.parameter)];
    axes[program.root(b.parent)] = program.units[static_cast<size_t>(p.unit)].axes;
  }
  return axes;
}

std::unordered_map<BufferId, BufferId> unpacked_gathers(const Program& program) {
  std::unordered_map<BufferId, BufferId> unpacked;
  for (const Instruction& op : program.instructions)
    if (op.op == OpKind::dequantize) unpacked[op.reads[0]] = op.writes[0];
  return unpacked;
}

BufferId gathered_from(const Program& program, const Instruction& op,
                       const std::unordered_map<BufferId, BufferId>& unpacked) {
  const auto is_packed_shard = [&](BufferId id) {
    const Buffer& buffer = program.at(program.root(id));
    return buffer.memory == MemoryClass::parameters && buffer.lifetime == Lifetime::step;
  };
  // A tensor group gathers rows of activations.
  const auto is_activation = [&](BufferId id) {
    return program.at(program.root(id)).memory == MemoryClass::activations;
  };
  BufferId gathered = kNone;
  if (op.op == OpKind::dequantize) {
    if (is_packed_shard(op.reads[0])) gathered = program.root(op.writes[0]);
  } else if (op.op == OpKind::all_gather && op.when != When::step_end &&
             !is_packed_shard(op.writes[0]) && !is_activation(op.writes[0])) {
    gathered = program.root(op.writes[0]);
    if (const auto packed = unpacked.find(gathered); packed != unpacked.end())
      gathered = packed->second;
  }
  if (gathered == kNone) return kNone;
  const Buffer& buffer = program.at(gathered);  // else rows of a tensor group
  const bool of_state = buffer.memory == MemoryClass::communication;
  return of_state && buffer.lifetime != Lifetime::persistent ? gathered : kNone;
}

}  // namespace dstrain
