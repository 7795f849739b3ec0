// Activation checkpointing. A forward value that the backward pass reads is not kept. Instead, the
// instructions that made it are repeated in front of its readers, as clones that write buffers of their own
// ("re:NAME") under groups of their own ("re:GROUP"). A clone is the same op over the same bits (dropout
// masks depend on the site and the sample alone), so the numbers of a step do not change, only the lifetimes
// of buffers.
#include <algorithm>
#include <iterator>
#include <map>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

// Selective recompute: the least saving for which a value is computed again, in bytes per unit of
// work. Work is the op's FLOPs plus the bytes it moves, because an op without a product is bound by
// memory, at about the time of one FLOP or more for each byte. Norms and activation functions save
// a half (they read as much as they write); a product of K features saves less than 2 / K and
// attention over T tokens less than 2 / T, so those are kept for any size worth saving.
constexpr double kLeastSaving = 0.25;

constexpr size_t kNowhere = SIZE_MAX;

// For every instruction of the forward pass: the instruction in front of which it runs once more.
using Places = std::vector<size_t>;

// Returns the number of instructions of the forward phase, which come first.
size_t forward_count(const Program& program) {
  const auto it = std::ranges::find(program.instructions, Phase::backward, &Instruction::phase);
  return static_cast<size_t>(it - program.instructions.begin());
}

// Returns which forward instructions may run a second time: those whose rule allows it and that add to nothing, whose
// results have no other writer and do not outlive the micro-batch.
std::vector<char> find_repeatable(const Program& program, size_t forward, RuleOf rule) {
  std::vector<int> writers(program.buffers.size());
  for (const Instruction& op : program.instructions)
    for (BufferId id : op.writes)
      if (id != kNone) ++writers[static_cast<size_t>(id)];
  std::vector<char> repeatable;
  for (size_t i = 0; i < forward; ++i) {
    const Instruction& op = program.instructions[i];
    repeatable.push_back(rule(op.op).repeatable && op.accumulate == Accumulate::never &&
                         std::ranges::all_of(op.writes, [&](BufferId id) {
                           return id != kNone && writers[static_cast<size_t>(id)] == 1 &&
                                  program.at(id).lifetime == Lifetime::micro &&
                                  program.at(id).parent == kNone;
                         }));
  }
  return repeatable;
}

// Returns the segment number of every instruction, -1 for instructions outside. A segment is `interval`
// consecutive layers of a chunk, of those that have a number; each chunk has its own part of a layer that lies in two.
// The loss is in no segment.
std::vector<int64_t> find_segments(const Program& program, int64_t interval) {
  std::map<std::pair<int64_t, int32_t>, int64_t>
      layer_of;  // a chunk's part of a layer of the model
  int64_t layers = 0;
  int32_t chunk = 0;
  std::vector<int64_t> segments;
  for (const Instruction& op : program.instructions) {
    if (std::exchange(chunk, op.chunk) != chunk)
      layers = (layers + interval - 1) / interval * interval;
    const int64_t of_model = program.sublayers[static_cast<size_t>(op.sublayer)].layer;
    const auto [layer, fresh] = layer_of.try_emplace({of_model, op.chunk}, -1);
    if (fresh && program.layers[static_cast<size_t>(of_model)].number >= 0)
      layer->second = layers++;
    const bool outside = makes_loss(op.op) || layer->second < 0;
    segments.push_back(outside ? -1 : layer->second / interval);
  }
  return segments;
}

// Keeps what a segment reads from outside and what others read of it. Everything else that its backward pass
// reads is computed again where the backward pass begins.
Places by_interval(const Program& program, int64_t interval, bool with_last_segment, RuleOf rule) {
  const size_t forward = forward_count(program);
  const std::vector<int64_t> segment = find_segments(program, interval);
  const std::vector<char> repeatable = find_repeatable(program, forward, rule);
  const int64_t last = *std::ranges::max_element(segment);
  // The segment in which a value can be dropped, else -1.
  std::vector<int64_t> home(program.buffers.size(), -1);
  for (size_t i = 0; i < forward; ++i) {
    if (!repeatable[i] || (segment[i] == last && !with_last_segment)) continue;
    for (BufferId id : program.instructions[i].writes) home[static_cast<size_t>(id)] = segment[i];
  }
  for (size_t i = 0; i < program.instructions.size(); ++i)
    for (BufferId id : program.instructions[i].reads)
      if (id != kNone && home[static_cast<size_t>(id)] != segment[i])
        home[static_cast<size_t>(id)] = -1;

  std::vector<char> needed(program.buffers.size());
  const auto need_operands = [&](const Instruction& op) {
    for (BufferId id : op.reads)
      if (id != kNone && home[static_cast<size_t>(id)] >= 0) needed[static_cast<size_t>(id)] = 1;
  };
  const auto is_needed = [&](BufferId id) {
    return id != kNone && needed[static_cast<size_t>(id)] != 0;
  };
  std::vector<size_t> begin(static_cast<size_t>(last + 1), kNowhere);  // of a segment's backward
  for (size_t i = forward; i < program.instructions.size(); ++i) {
    if (segment[i] < 0) continue;
    size_t& first = begin[static_cast<size_t>(segment[i])];
    first = std::min(first, i);
    need_operands(program.instructions[i]);
  }
  Places places(forward, kNowhere);
  for (size_t i = forward; i-- > 0;) {
    const Instruction& op = program.instructions[i];
    if (!std::ranges::any_of(op.writes, is_needed)) continue;
    places[i] = begin[static_cast<size_t>(segment[i])];
    need_operands(op);
  }
  return places;
}

// What selective() repeats.
struct Repeats {
  bool cheap = false;    // what is cheap to compute
  bool gathers = false;  // gathers of the rows of a tensor group
};

// Computes again what is cheap, in front of its first reader in the backward pass. An op runs again
// only within its own layer and chunk, whose parameters are at hand there, and only where the backward pass
// still needs every operand at that place anyway: nothing is kept longer for it. Rows are gathered again in front of
// theirs from what this rank has of them, which is kept, or computed again.
Places selective(const Program& program, Repeats repeats, RuleOf rule) {
  const size_t forward = forward_count(program);
  const std::vector<char> repeatable = find_repeatable(program, forward, rule);
  std::vector<size_t> first(program.buffers.size(), kNowhere), last(program.buffers.size(), 0);
  for (size_t i = forward; i < program.instructions.size(); ++i)
    for (BufferId id : program.instructions[i].reads) {
      if (id == kNone) continue;
      first[static_cast<size_t>(id)] = std::min(first[static_cast<size_t>(id)], i);
      last[static_cast<size_t>(id)] = i;
    }
  Places places(forward, kNowhere);
  for (size_t i = forward; i-- > 0;) {
    const Instruction& op = program.instructions[i];
    const bool gather = rule(op.op).collective == Collective::all_gather;
    if (!repeatable[i] || (is_collective(op.op) && !gather) ||
        !(gather ? repeats.gathers : repeats.cheap))
      continue;
    size_t place = kNowhere;
    double saved = 0;
    for (BufferId id : op.writes) {
      if (first[static_cast<size_t>(id)] == kNowhere) continue;
      place = std::min(place, first[static_cast<size_t>(id)]);
      saved += static_cast<double>(program.at(id).bytes());
    }
    const Cost cost = cost_of(program, op);
    if (place == kNowhere || program.instructions[place].group != op.group ||
        program.instructions[place].chunk != op.chunk ||
        (!gather && saved < kLeastSaving * (cost.flops + cost.bytes)))
      continue;
    const bool at_hand = std::ranges::all_of(op.reads, [&](BufferId id) {
      return id == kNone || program.at(id).lifetime != Lifetime::micro ||
             last[static_cast<size_t>(id)] >= place;
    });
    if (!at_hand && !gather) continue;
    places[i] = place;
    // An operand that is itself computed again must precede this clone.
    for (BufferId id : op.reads)
      if (id != kNone) {
        first[static_cast<size_t>(id)] = std::min(first[static_cast<size_t>(id)], place);
        last[static_cast<size_t>(id)] = std::max(last[static_cast<size_t>(id)], place);
      }
  }
  return places;
}

// Returns `program` with the clones that `places` asks for. A read is redirected to a clone that precedes it;
// earlier reads keep the original.
Program with_clones(const Program& program, const Places& places) {
  Program result = program;
  std::vector<BufferId> clone(program.buffers.size(), kNone);
  std::vector<size_t> begin(program.buffers.size(), kNowhere);
  const auto redirect = [&](Instruction& op, size_t place) {
    for (BufferId& id : op.reads)
      if (id != kNone && begin[static_cast<size_t>(id)] <= place)
        id = clone[static_cast<size_t>(id)];
  };
  std::vector<std::vector<Instruction>> in_front(program.instructions.size());
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i] == kNowhere) continue;
    Instruction again = program.instructions[i];
    redirect(again, places[i]);
    for (BufferId& id : again.writes) {
      Buffer copy = program.at(id);
      copy.name = "re:" + copy.name;
      copy.copy_of = id;
      begin[static_cast<size_t>(id)] = places[i];
      clone[static_cast<size_t>(id)] = result.add_buffer(std::move(copy));
      id = clone[static_cast<size_t>(id)];
    }
    again.phase = Phase::backward;
    again.group = result.add_group("re:" + program.group_name(again));
    in_front[places[i]].push_back(std::move(again));
  }
  result.instructions.clear();
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    std::ranges::move(in_front[i], std::back_inserter(result.instructions));
    result.instructions.push_back(program.instructions[i]);
    redirect(result.instructions.back(), i);
  }
  return result;
}

// Returns the most bytes that are live at once among buffers that live for a micro-batch.
int64_t peak_bytes(const Program& program) {
  std::vector<size_t> first(program.buffers.size(), kNowhere), last(program.buffers.size(), 0);
  for (size_t i = 0; i < program.instructions.size(); ++i)
    for_operands(program.instructions[i], [&](BufferId id) {
      if (program.at(id).lifetime != Lifetime::micro) return;
      first[static_cast<size_t>(id)] = std::min(first[static_cast<size_t>(id)], i);
      last[static_cast<size_t>(id)] = i;
    });
  std::vector<int64_t> change(program.instructions.size() + 1);
  for (size_t b = 0; b < program.buffers.size(); ++b) {
    if (first[b] == kNowhere) continue;
    change[first[b]] += program.buffers[b].bytes();
    change[last[b] + 1] -= program.buffers[b].bytes();
  }
  int64_t live = 0, peak = 0;
  for (int64_t delta : change) peak = std::max(peak, live += delta);
  return peak;
}

}  // namespace

void recompute(Program& program, const Job& job, RuleOf rule) {
  if (forward_count(program) == program.instructions.size()) return;  // all that it has is frozen
  const bool cheap = job.recompute.mode == RecomputeMode::selective;
  switch (job.recompute.mode) {
    case RecomputeMode::none:
    case RecomputeMode::selective:
      if (const bool gathers = job.gather_again == GatherAgain::on; cheap || gathers)
        program =
            with_clones(program, selective(program, {.cheap = cheap, .gathers = gathers}, rule));
      return;
    case RecomputeMode::interval: {
      const int64_t interval = job.recompute.interval;
      // The backward pass of the last segment follows almost at once, so its values are computed
      // again only where the head in between (a large vocabulary) would make the peak with them.
      Program all = with_clones(program, by_interval(program, interval, true, rule));
      // A stage of a pipeline works on other micro-batches in between.
      if (program.last_loss() == kNone) {
        program = std::move(all);
        return;
      }
      Program but_last = with_clones(program, by_interval(program, interval, false, rule));
      program = std::move(peak_bytes(but_last) <= peak_bytes(all) ? but_last : all);
      return;
    }
  }
}

}  // namespace dstrain
