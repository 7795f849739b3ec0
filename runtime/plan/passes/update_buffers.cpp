// The end of a step for registered buffers: their sums are added over data-parallel ranks in one message, and change
// the buffers once it is known that the step is not skipped.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/ir/formula/formula.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

// Emits on which side of their mean the sums of a buffer are. Returns f32 values: 1 below it, -1 above.
BufferId signs_of(Program& program, const RegisteredBuffer& b, int32_t group,
                  std::vector<Instruction>& list) {
  const Shape space{b.shape.elements()};
  const auto add = [&](std::string_view what, const Shape& shape) {
    return program.add_buffer(
        {.name = fmt::format("{}:{}", what, b.name), .shape = shape, .lifetime = Lifetime::step});
  };
  const auto emit = [&](OpKind op, OpAttrs attrs, std::vector<BufferId> reads, BufferId write) {
    list.push_back({.op = op,
                    .when = When::step_end,
                    .attrs = std::move(attrs),
                    .reads = std::move(reads),
                    .writes = {write},
                    .group = group});
    return write;
  };
  const Formula value = Formula::input(0), mean = Formula::input(1) / static_cast<float>(space[0]);
  const BufferId total = emit(
      OpKind::reduce, ReduceAttrs{.formula = value, .space = space, .views = {dense_view(space)}},
      {b.sum}, add("total", {1}));
  return emit(OpKind::map,
              MapAttrs{.formula = less(value, mean) - less(mean, value),
                       .space = space,
                       .views = {dense_view(space), View{}}},
              {b.sum, total}, add("sides", b.shape));
}

}  // namespace

void update_buffers(Program& program, const Job& job, Place place) {
  std::vector<RegisteredBuffer> updated;
  int64_t elements = 0;
  for (const RegisteredBuffer& b : program.registered) {
    if (b.sum == kNone) continue;
    updated.push_back(b);
    elements += b.shape.elements();
  }
  if (updated.empty()) return;
  const BufferId sums = program.add_buffer({.name = "buffer_sums",
                                            .shape = {elements},
                                            .memory = MemoryClass::communication,
                                            .lifetime = Lifetime::step});
  int64_t at = 0;
  for (const RegisteredBuffer& b : updated) {
    program.at(b.sum).parent = sums;
    program.at(b.sum).parent_offset = at;
    at += b.shape.elements();
  }
  const int32_t group = program.add_group("buffers");
  std::vector<Instruction>& list = program.instructions;
  auto finish = std::ranges::find(list, OpKind::finish_gradients, &Instruction::op);
  check(finish != list.end(), "a step that updates buffers has no end");
  const Axes adds = kStateAxes | Axis::tensor;  // each rank has the sum of its own rows
  if (place.ranks_in(adds) > 1) {
    finish = list.insert(finish, {.op = OpKind::all_reduce,
                                  .when = When::step_end,
                                  .reads = {sums},
                                  .writes = {sums},
                                  .group = group,
                                  .channel = channel_of(place, adds)});
    ++finish;
  }
  std::vector<Instruction> updates;
  for (const RegisteredBuffer& b : updated) {
    const BufferId change = b.towards_mean ? signs_of(program, b, group, updates) : b.sum;
    const auto samples = static_cast<float>(b.per_sample ? job.batch.train_batch : 1);
    updates.push_back({.op = OpKind::update_buffer,
                       .when = When::step_end,
                       .attrs = UpdateBufferAttrs{.keep = b.keep, .share = b.share / samples},
                       .reads = {change},
                       .writes = {b.values},
                       .group = group});
  }
  list.insert(finish + 1, updates.begin(), updates.end());
}

}  // namespace dstrain
