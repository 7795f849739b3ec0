// The codecs of parameters that ranks gather.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/plan/codecs/codec.h"

namespace dstrain {

// The parameters of a unit that a rank holds, and the buffer where it gathers those of all ranks.
struct GatherOperands {
  int unit = 0;  // index
  std::string
      name{};  // of the gather: that of the unit, and a number if it is not the unit's first
  BufferId held = kNone;   // the slice or the shard; with PackedShards, the packed one
  BufferId exact = kNone;  // the slice before it was packed, with PackedShards
  BufferId gathered = kNone;
  bool measures = false;  // what is lost is measured
};

// Parameters travel as they are held. What a shard group gathers are as many blocks as there are replicas, each the slices
// of one replica's ranks.
class PlainGather final : public Codec {
 public:
  PlainGather(const CodecPlan& plan, const GatherOperands& operands);
  void send(const Instruction& like, std::vector<Instruction>& list) override;
  void receive(std::vector<Instruction>&) override {}

 private:
  CodecPlan plan_;
  GatherOperands operands_;
};

// qwZ: parameters travel as int8 (runtime/ir/quantized.h). Every rank computes with what it unpacks, its own slice included,
// so that all ranks have the same values. Masters and the slices that ranks hold stay as they are. With PackedShards what
// is held is packed already, and gathers stay within a replica; a lone rank of one has all parameters packed, and unpacks a
// unit where it would gather it.
class Int8Gather final : public Codec {
 public:
  Int8Gather(const CodecPlan& plan, const GatherOperands& operands);
  void send(const Instruction& like, std::vector<Instruction>& list) override;
  void receive(std::vector<Instruction>& list) override;

 private:
  CodecPlan plan_;
  GatherOperands operands_;
  Instruction like_{};
  BufferId packed_ = kNone;  // of all ranks
};

// The packed shards of a plan in which replicas hold all parameters and these travel as int8. Replicas exchange packed slices
// once a step, before anything is gathered, so that each value is rounded once.
class PackedShards {
 public:
  explicit PackedShards(const CodecPlan& plan) : plan_(plan) {}

  // Returns whether the units' parameters travel so.
  bool take(const Unit& unit) const;
  // Sets Unit::buffers.packed, the slices of the rank's replica group, and adds the exchange that makes it, unless this has
  // been done. `group`: what it is printed under. Returns the slice that is packed, where it is read.
  BufferId add(int unit, int32_t group);
  // Appends all exchanges to the start of a step, in the order of add(). A slice that is elsewhere has its last hop while the
  // unit before is packed and sent, its first one a unit earlier.
  void append_exchanges(std::vector<Instruction>& list);

 private:
  struct Exchange {
    std::vector<Instruction> hops{};  // transfers of the rank's slice from another space
    std::vector<Instruction> ops{};
  };

  CodecPlan plan_;
  std::unordered_map<int, BufferId> slices_;  // that are packed, by unit
  std::vector<Exchange> exchanges_;
};

}  // namespace dstrain
