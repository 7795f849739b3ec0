#include "runtime/plan/codecs/step_gradients.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "runtime/plan/transfers.h"

namespace dstrain {

void StepGradients::add(const Unit& unit, BufferId slice, Instruction add,
                        std::vector<Instruction>& list) {
  if (unit.spaces.gradients == Space::device) {
    list.push_back(std::move(add));
    return;
  }
  const BufferId sum = add.reads[0], gradients = add.writes[0];
  const bool disk = unit.spaces.gradients == Space::disk;
  const bool as_it_is = one_micro_batch_ && program_.at(sum).dtype == program_.at(gradients).dtype;
  const BufferId here = disk ? passing("passing:", gradients) : gradients;  // in the host's memory
  const BufferId to = as_it_is ? here : passing("arrived:", sum);
  Instruction like = add;
  like.accumulate = Accumulate::never;
  std::ranges::move(transfer(program_, sum, to, like), std::back_inserter(list));
  // The host adds when the next unit's copy has been posted, so that it waits for no work that the device has just been
  // given.
  finish(list);
  add.reads[0] = to;
  add.writes[0] = here;
  if (!as_it_is) waiting_.push_back(std::move(add));
  if (!disk) return;
  Instruction squares = like;
  const Buffer owned = program_.at(slice);  // where gradients are whole, a part of them
  squares.op = OpKind::sum_squares;
  squares.reads = {
      program_.view(here, owned.parent == kNone ? 0 : owned.parent_offset, owned.shape.elements())};
  squares.writes = {unit.buffers.host_squares};
  waiting_.push_back(std::move(squares));
  std::ranges::move(transfer(program_, here, gradients, like), std::back_inserter(waiting_));
}

void StepGradients::finish(std::vector<Instruction>& list) {
  std::ranges::move(waiting_, std::back_inserter(list));
  waiting_.clear();
}

BufferId StepGradients::passing(const std::string& name, BufferId like) {
  return program_.add_buffer({.name = name + program_.at(like).name,
                              .shape = program_.at(like).shape,
                              .dtype = program_.at(like).dtype,
                              .memory = MemoryClass::communication,
                              .copy_of = like,
                              .role = BufferRole::gradients,
                              .space = Space::host});
}

}  // namespace dstrain
