// A codec: how a tensor of a unit travels among ranks. The state table says which codec that is (Unit::codecs). The passes
// that send state, reduce() and gather(), take a Codec for each transfer and decide when its parts are issued; the codec
// decides what they are: what is needed before and after the collective, in which buffers, and what is kept for the next
// step. A new codec is a CodecKind, a file here with its Codec, and a line in step_residency() and in gradient_codec() or gather_codec().
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/ir/program.h"
#include "runtime/optim/step_kind.h"
#include "runtime/plan/codecs/step_gradients.h"
#include "runtime/plan/residency.h"

namespace dstrain {

class Codec {
 public:
  virtual ~Codec() = default;
  // Appends what `writer` needs in front of it, and changes its operands. Called for every instruction that writes the
  // values; only codecs of gradients have a part in it.
  virtual void prepare(Instruction& /*writer*/, std::vector<Instruction>& /*list*/) {}
  // Appends what this rank does to the values before it sends them, and the collective, issued where `like` is: in its
  // group, phase and chunk.
  virtual void send(const Instruction& like, std::vector<Instruction>& list) = 0;
  // Appends the next hop, if there is one that has not begun: what has come is added and sent on. reduce() calls it when the
  // next unit has been sent; else receive() begins with it.
  virtual void forward(std::vector<Instruction>& /*list*/) {}
  // Appends what brings the received values to where the pass wants them.
  virtual void receive(std::vector<Instruction>& list) = 0;
};

// What codecs know of the plan that they emit for. The references must outlive them.
struct CodecPlan {
  Program& program;
  const Job& job;
  const Residency& residency;
  Place place;
};

// Returns residency_of() with the codecs that the job asks for in steps of a kind, and when and where ranks add gradients
// then.
Residency step_residency(const Job& job, const Place& place, StepKind kind = StepKind::regular);

// Gives each unit its codecs, before layout() places gradients. Throws InternalError if gradients are to travel as rows of
// tokens and the token embedding is not the first parameter of its unit, or its gradient has several parts.
void assign_codecs(Program& program, const Job& job, const Residency& residency);

// Returns how the gradients of the unit with this index travel from `micro_gradients`, where ranks add after each
// micro-batch, or else from `gradients`, and are added to `gradients`; null if nothing is done unit by unit. `step`: takes the
// sums, and must outlive the result.
std::unique_ptr<Codec> gradient_codec(const CodecPlan& plan, int unit, StepGradients& step);

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
// Returns how they travel.
std::unique_ptr<Codec> gather_codec(const CodecPlan& plan, const GatherOperands& operands);

}  // namespace dstrain
