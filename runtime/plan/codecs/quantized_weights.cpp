// qwZ: parameters travel as int8 (runtime/ir/quantized.h). Every rank computes with what it unpacks, its own slice
// included, so that all ranks have the same values. Masters and the slices that ranks hold stay as they are.
#include <optional>
#include <utility>
#include <vector>

#include "runtime/ir/quantized.h"
#include "runtime/plan/codecs/codecs.h"

namespace dstrain {
namespace {

class QuantizeGathers {
 public:
  QuantizeGathers(Program& program, Place place)
      : program_(program), place_(place), replicas_(place.replicas_hold && place.factored()) {}

  void run() {
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
    for (Instruction& op : list) exchange_.push_back(std::move(op));
    program_.instructions = std::move(exchange_);
  }

 private:
  bool gathers_parameters(const Instruction& op) const {
    return op.op == OpKind::all_gather && op.when != When::step_end &&
           program_.at(program_.root(op.writes[0])).lifetime != Lifetime::persistent;
  }

  // Finds where each gathered buffer is read first: of those gathered for the whole step, the end of the step's start.
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
                                .lifetime = lifetime,
                                .shared = true});
  }

  // Appends what brings the packed slices of all ranks to `list`, and what unpacks them to `before` the first use.
  void replace(const Instruction& gather, std::vector<Instruction>& list,
               std::vector<std::vector<Instruction>>& before) {
    const BufferId gathered = gather.writes[0];
    const std::string name = program_.at(gathered).name.substr(sizeof("gathered:") - 1);
    const int64_t bytes = quantized_bytes(program_.at(gather.reads[0]).shape.elements());
    const BufferId packed = add_packed("quantized:" + name, place_.ranks, bytes,
                                       MemoryClass::communication, Lifetime::micro);
    Instruction op = gather;
    if (replicas_) {
      const BufferId shard = shard_of(gather, bytes);
      const int64_t block = place_.shard_size() * bytes;
      op.channel = shard_group;
      for (int64_t b = 0; b < place_.replicas(); ++b) {
        op.reads = {program_.view(shard, b * bytes, bytes)};
        op.writes = {program_.view(packed, b * block, block)};
        list.push_back(op);
      }
    } else {
      const BufferId mine = program_.view(packed, place_.rank * bytes, bytes);
      // Peers read the packed slice alone.
      if (Buffer& source = program_.at(program_.root(gather.reads[0]));
          source.lifetime != Lifetime::persistent)
        source.shared = false;
      op.op = OpKind::quantize;
      op.writes = {mine};
      list.push_back(op);
      op.op = OpKind::all_gather;
      op.reads = {mine};
      op.writes = {packed};
      list.push_back(op);
    }
    op.op = OpKind::dequantize;
    op.channel = 0;
    op.reads = {packed};
    op.writes = {gathered};
    before[gather.when == When::step_begin ? end_of_start_
                                           : first_read_[static_cast<size_t>(gathered)]]
        .push_back(std::move(op));
  }

  // Returns the packed slices of the replica group, which are exchanged once in a step.
  BufferId shard_of(const Instruction& gather, int64_t bytes) {
    const std::string& params = program_.at(gather.reads[0]).name;
    const std::string name = "shard:" + params.substr(params.find(':') + 1);
    if (const BufferId known = program_.find(name); known != kNone) return known;
    const BufferId shard =
        add_packed(name, place_.replicas(), bytes, MemoryClass::parameters, Lifetime::step);
    const BufferId mine = program_.view(shard, place_.replica() * bytes, bytes);
    Instruction op{.op = OpKind::quantize,
                   .when = When::step_begin,
                   .reads = {gather.reads[0]},
                   .writes = {mine},
                   .group = gather.group};
    exchange_.push_back(op);
    op.op = OpKind::all_gather;
    op.reads = {mine};
    op.writes = {shard};
    op.channel = replica_group;
    exchange_.push_back(std::move(op));
    return shard;
  }

  Program& program_;
  const Place place_;
  const bool replicas_;             // parameters are divided within each replica
  std::vector<size_t> first_read_;  // of each buffer
  size_t end_of_start_ = 0;         // the first instruction that is not of the step's start
  std::vector<Instruction> exchange_;
};

}  // namespace

void quantize_gathers(Program& program, const Job& job, Place place, const Residency& residency) {
  if (job.quantize.weights && residency.parameters != Held::whole)
    QuantizeGathers(program, place).run();
}

std::unordered_map<BufferId, BufferId> unpacked_gathers(const Program& program) {
  std::unordered_map<BufferId, BufferId> unpacked;
  for (const Instruction& op : program.instructions)
    if (op.op == OpKind::dequantize) unpacked[op.reads[0]] = op.writes[0];
  return unpacked;
}

}  // namespace dstrain
