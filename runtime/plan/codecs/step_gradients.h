// The step's gradients, to which the sums over ranks are added as soon as they are there. Where those live in the host's
// memory or on disk (Unit::spaces), the sums leave the device then, and the host adds those of the step's micro-batches.
#pragma once

#include <string>
#include <vector>

#include "runtime/ir/program.h"

namespace dstrain {

class StepGradients {
 public:
  // `one_micro_batch`: a step has no other whose gradients are there already.
  StepGradients(Program& program, bool one_micro_batch)
      : program_(program), one_micro_batch_(one_micro_batch) {}

  // Appends what adds operand 0 of `add`, an accumulate, to the gradients of `unit` that it writes. `slice`: those that this
  // rank owns, in the buffer of the unit's gradients. Of what goes on to disk the host adds the squares as it passes: nothing
  // else reads it before the norm is known.
  void add(const Unit& unit, BufferId slice, Instruction add, std::vector<Instruction>& list);

  // Appends what the host still has to do, at the end of the turn in which sums have been added.
  void finish(std::vector<Instruction>& list);

 private:
  BufferId passing(const std::string& name, BufferId like);

  Program& program_;
  const bool one_micro_batch_;
  std::vector<Instruction> waiting_;  // the host's work on what has been posted last
};

}  // namespace dstrain
