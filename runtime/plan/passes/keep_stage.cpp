// The parts of a program that a stage of a pipeline runs. The whole program is cut between sublayers: a value that one
// part writes and another one reads travels from part to part, in a message where the next one is on another stage, and so
// does the gradient that comes back. What follows from inputs alone does not travel (repeat_in_parts). A message has the same
// buffer, by name, on both sides.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/passes/repeat_in_parts.h"
#include "runtime/plan/pipeline/schedule.h"

namespace dstrain {
namespace {

constexpr size_t kNotWritten = SIZE_MAX;

// A value that crosses a cut, on its way from part to part.
struct Message {
  BufferId buffer = kNone;
  size_t writer = 0;     // instruction that has written it
  int from = 0, to = 0;  // parts, neighbours
  bool relayed = false;  // it has come to `from` in a message itself
};

class Cut {
 public:
  Cut(const Program& program, const std::vector<int64_t>& first_sublayers, Place place,
      const PipelineConfig& pipeline)
      : first_sublayers_(first_sublayers), place_(place), pipeline_(pipeline) {
    for (const Instruction& op : program.instructions) part_of_.push_back(part_of(op.sublayer));
    program_ = repeat_in_parts(program, part_of_);
  }

  Program run() {
    find_messages();
    std::vector<Instruction> kept = instructions();
    return with(std::move(kept));
  }

 private:
  const Instruction& at(size_t i) const { return program_.instructions[i]; }
  int part_of(int64_t sublayer) const {
    const auto next = std::ranges::upper_bound(first_sublayers_, sublayer);
    return static_cast<int>(next - first_sublayers_.begin()) - 1;
  }
  StageChunk home_of(int part) const {
    return chunk_of_part(pipeline_.schedule, place_.stages(), part);
  }
  bool here(int part) const { return home_of(part).stage == place_.stage(); }

  void find_messages() {
    std::vector<size_t> writer(program_.buffers.size(), kNotWritten);
    std::map<std::pair<BufferId, int>, size_t> delivered;  // by buffer and stage: the writer
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      for (const BufferId id : at(i).reads) {
        const size_t w = id == kNone ? kNotWritten : writer[static_cast<size_t>(id)];
        if (w == kNotWritten) continue;
        const int home = part_of_[w], step = part_of_[i] < home ? -1 : 1;
        check(part_of_[i] == home || (step > 0) == (at(w).phase == Phase::forward),
              "{} would travel against its phase from part {} to part {}", program_.at(id).name,
              home, part_of_[i]);
        for (int part = home; part != part_of_[i]; part += step) {
          const int stage = home_of(part + step).stage;
          if (stage == home_of(home).stage) continue;  // it has the value, for all of its parts
          const auto [known, fresh] = delivered.try_emplace({id, stage}, w);
          if (!fresh && std::exchange(known->second, w) == w) continue;
          messages_.push_back({id, w, part, part + step, part != home});
        }
      }
      for (const BufferId id : at(i).writes)
        if (id != kNone && program_.at(id).lifetime == Lifetime::micro)
          writer[static_cast<size_t>(id)] = i;
    }
    // In each part what comes from further away is sent on before its own results are: both ends of a link have this order.
    std::ranges::stable_sort(messages_, {}, &Message::writer);
  }

  Phase phase_of(const Message& m) const { return at(m.writer).phase; }

  // Returns this stage's instructions, with its messages: each value is sent as soon as it is written, or has come. What a
  // phase receives is in front of it.
  std::vector<Instruction> instructions() {
    std::vector<Instruction> list;
    std::set<std::pair<Phase, int>> begun;
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const int part = part_of_[i];
      if (!here(part)) continue;
      if (begun.emplace(at(i).phase, part).second) {
        for (const Message& m : messages_)
          if (m.to == part && phase_of(m) == at(i).phase)
            list.push_back(carried(m, false, first_reader(m, i)));
        for (const Message& m : messages_)
          if (m.relayed && m.from == part && phase_of(m) == at(i).phase)
            list.push_back(carried(m, true, at(i)));
      }
      list.push_back(at(i));
      list.back().chunk = home_of(part).chunk;
      for (const Message& m : messages_)
        if (!m.relayed && m.writer == i) list.push_back(carried(m, true, at(i)));
    }
    for (const Message& m : messages_)
      check(!here(m.to) || begun.contains({phase_of(m), m.to}),
            "{} travels to part {}, which has no such phase", program_.at(m.buffer).name, m.to);
    return list;
  }

  // Returns the first instruction from `begin` on that reads a message in the phase and the part that it comes to; the one at
  // `begin` if none does.
  const Instruction& first_reader(const Message& m, size_t begin) const {
    for (size_t i = begin; i < program_.instructions.size(); ++i)
      if (part_of_[i] == m.to && at(i).phase == phase_of(m) &&
          std::ranges::find(at(i).reads, m.buffer) != at(i).reads.end())
        return at(i);
    return at(begin);
  }

  // Returns the end of a message that sends, if `out`, or receives.
  Instruction carried(const Message& m, bool out, const Instruction& like) const {
    Instruction op{.op = out ? OpKind::send : OpKind::recv,
                   .group = like.group,
                   .phase = like.phase,
                   .sublayer = like.sublayer};
    op.chunk = home_of(out ? m.from : m.to).chunk;
    op.channel = channel_of(place_, link_of(m, out));
    (out ? op.reads : op.writes) = {m.buffer};
    return op;
  }

  Link link_of(const Message& m, bool out) const {
    const bool forward = m.from < m.to;
    const bool up =
        pipeline_.schedule == PipelineSchedule::zb_v && home_of(std::min(m.from, m.to)).chunk == 1;
    if (up)
      return forward ? (out ? Link::up_to_previous : Link::up_from_next)
                     : (out ? Link::up_to_next : Link::up_from_previous);
    return forward ? (out ? Link::to_next : Link::from_previous)
                   : (out ? Link::to_previous : Link::from_next);
  }

  // Returns a program of these instructions and what they use, with the units of this stage.
  Program with(std::vector<Instruction> kept) {
    Program result;
    result.dtype = program_.dtype;
    result.groups = program_.groups;
    std::vector<BufferId> moved(program_.buffers.size(), kNone);
    std::vector<char> used(program_.buffers.size());
    const auto use = [&](BufferId id) {
      for (; id != kNone; id = program_.at(id).parent) used[static_cast<size_t>(id)] = 1;
    };
    for (const Instruction& op : kept) {
      std::ranges::for_each(op.reads, use);
      std::ranges::for_each(op.writes, use);
    }
    // Every stage counts the targets of its samples, and labels may follow from features.
    for (const ProgramInput& input : program_.inputs) use(input.buffer);
    for (const RegisteredBuffer& b : program_.registered)
      if (here(part_of(b.sublayer))) use(b.values);
    for (size_t b = 0; b < used.size(); ++b)
      if (used[b]) moved[b] = result.add_buffer(program_.buffers[b]);
    const auto move = [&](BufferId& id) {
      if (id != kNone) id = moved[static_cast<size_t>(id)];
    };
    for (Buffer& buffer : result.buffers) {
      move(buffer.parent);
      move(buffer.copy_of);
    }
    for (Instruction& op : kept) {
      std::ranges::for_each(op.reads, move);
      std::ranges::for_each(op.writes, move);
    }
    result.instructions = std::move(kept);
    result.inputs = program_.inputs;
    result.logits = program_.logits;
    result.log_probs = program_.log_probs;
    result.losses = program_.losses;
    result.loss_weight = program_.loss_weight;
    for (ProgramLoss& loss : result.losses) move(loss.sum);
    for (ProgramInput& input : result.inputs) move(input.buffer);
    move(result.logits);
    move(result.log_probs);
    result.constants = program_.constants;
    for (ProgramConstant& constant : result.constants) move(constant.buffer);
    result.registered = program_.registered;
    for (RegisteredBuffer& b : result.registered) {
      move(b.values);
      move(b.sum);
      check(b.values == kNone || here(part_of(b.sublayer)),
            "buffer {} is used by another stage than its own", b.name);
    }
    keep_units(result, move);
    return result;
  }

  template <class Move>
  void keep_units(Program& result, const Move& move) const {
    for (const Unit& unit : program_.units) {
      const int end = unit.first_sublayer + unit.sublayers;
      for (int first = unit.first_sublayer, last = first; first < end; first = last) {
        while (last < end && part_of(last) == part_of(first)) ++last;
        if (here(part_of(first))) keep_unit(result, unit, first, last, move);
      }
    }
    result.layers = program_.layers;
    result.sublayers = program_.sublayers;
    result.model = program_.parameters;
    for (Parameter& p : result.model) p.value = p.gradient = kNone;
    for (const Buffer& b : result.buffers)
      check(b.parameter < 0 || result.parameter(b.parameter).value == result.find(b.name),
            "{} is used by another stage than its own", b.name);
  }

  // Keeps the sublayers [first, last) of a unit: all of them, or those of one part.
  template <class Move>
  void keep_unit(Program& result, const Unit& unit, int first, int last, const Move& move) const {
    const auto index = static_cast<int>(result.units.size());
    Unit kept{.name = unit.name, .first_sublayer = first, .sublayers = last - first};
    if (kept.sublayers < unit.sublayers)
      kept.name += "." + program_.sublayers[static_cast<size_t>(first)].name;
    result.units.push_back(std::move(kept));
    for (const int old : unit.parameters) {
      Parameter p = program_.parameter(old);
      if (p.sublayer < first || p.sublayer >= last) continue;
      p.unit = index;
      move(p.value);
      move(p.gradient);
      check(p.value != kNone, "{} is not used by its own sublayer", p.name);
      const auto number = static_cast<int>(result.parameters.size());
      result.at(p.value).parameter = number;
      result.units.back().parameters.push_back(number);
      result.parameters.push_back(std::move(p));
    }
  }

  Program program_;
  const std::vector<int64_t>& first_sublayers_;
  Place place_;
  const PipelineConfig& pipeline_;
  std::vector<int> part_of_;       // of every instruction
  std::vector<Message> messages_;  // between stages, by writer
};

}  // namespace

Program keep_stage(const Program& program, const std::vector<int64_t>& first_sublayers, Place place,
                   const PipelineConfig& pipeline) {
  return place.stages() > 1 ? Cut(program, first_sublayers, place, pipeline).run() : program;
}

}  // namespace dstrain
