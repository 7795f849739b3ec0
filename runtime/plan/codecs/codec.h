// A codec: how a tensor of a unit travels among ranks. The state table says which codec that is (Unit::codecs). The passes
// that send state, reduce() and gather(), take a Codec for each transfer and decide when its parts are issued; the codec
// decides what they are: what is needed before and after the collective, in which buffers, and what is kept for the next
// step. A new codec is a CodecKind, a file here with its Codec, and a line in step_residency() and in reduce() or gather().
#pragma once

#include <vector>

#include "runtime/config/job.h"
#include "runtime/ir/program.h"
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

}  // namespace dstrain
