// The part of a program that a stage of a pipeline runs. The whole program is cut between layers: a value that
// one stage writes and the next one reads travels in a message, and so does the gradient that comes back. A
// message has the same buffer, by name, on both sides.
#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

// A value that crosses a cut.
struct Message {
  BufferId buffer = kNone;
  size_t writer = 0;  // instruction after which it is sent
  size_t reader = 0;  // first instruction that reads it on the other side
  int from = 0, to = 0;
};

class Cut {
 public:
  Cut(const Program& program, const std::vector<int64_t>& first_layers, Place place)
      : program_(program), place_(place) {
    for (const Instruction& op : program.instructions) {
      const auto next = std::ranges::upper_bound(first_layers, int64_t{op.layer});
      stage_of_.push_back(static_cast<int>(next - first_layers.begin()) - 1);
    }
    first_layer_ = first_layers[static_cast<size_t>(place.stage)];
    last_layer_ = first_layers[static_cast<size_t>(place.stage) + 1] - 1;
  }

  Program run() {
    find_messages();
    std::vector<Instruction> kept = instructions();
    return with(std::move(kept));
  }

 private:
  const Instruction& at(size_t i) const { return program_.instructions[i]; }

  void find_messages() {
    std::map<BufferId, size_t> writer;
    std::map<std::pair<BufferId, int>, size_t> delivered;  // by buffer and stage: the writer
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const int here = stage_of_[i];
      for (const BufferId id : at(i).reads) {
        if (id == kNone) continue;
        const auto w = writer.find(id);
        if (w == writer.end() || stage_of_[w->second] == here) continue;
        const auto [known, fresh] = delivered.try_emplace({id, here}, w->second);
        if (!fresh && known->second == w->second) continue;
        known->second = w->second;
        add_message({id, w->second, i, stage_of_[w->second], here});
      }
      for (const BufferId id : at(i).writes)
        if (id != kNone && program_.at(id).lifetime == Lifetime::micro) writer[id] = i;
    }
    std::ranges::stable_sort(messages_, {}, &Message::writer);
  }

  void add_message(const Message& message) {
    const std::string& name = program_.at(message.buffer).name;
    check(std::abs(message.from - message.to) == 1,
          "{} would travel from stage {} to stage {}, which are not neighbours", name, message.from,
          message.to);
    check(at(message.writer).phase == at(message.reader).phase,
          "{} is written and read in different phases of a micro-batch", name);
    messages_.push_back(message);
  }

  // Returns this stage's instructions, with its messages: each value is sent as soon as it is written, and
  // received from the beginning of the phase that reads it.
  std::vector<Instruction> instructions() {
    std::vector<Instruction> list;
    std::array<bool, 2> begun{};  // by phase
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      if (stage_of_[i] != place_.stage) continue;
      bool& phase = begun[static_cast<size_t>(at(i).phase)];
      if (!std::exchange(phase, true))
        for (const Message& m : messages_)
          if (m.to == place_.stage && at(m.reader).phase == at(i).phase)
            list.push_back(carried(OpKind::recv, m, at(m.reader)));
      list.push_back(at(i));
      for (const Message& m : messages_)
        if (m.writer == i) list.push_back(carried(OpKind::send, m, at(i)));
    }
    return list;
  }

  static Instruction carried(OpKind kind, const Message& m, const Instruction& like) {
    const bool forward = m.from < m.to, out = kind == OpKind::send;
    Instruction op{.op = kind, .group = like.group, .phase = like.phase, .layer = like.layer};
    op.channel = forward ? (out ? to_next : from_previous) : (out ? to_previous : from_next);
    (out ? op.reads : op.writes) = {m.buffer};
    return op;
  }

  // Returns a program of these instructions and what they use, with the units of this stage.
  Program with(std::vector<Instruction> kept) {
    Program result;
    result.dtype = program_.dtype;
    result.groups = program_.groups;
    std::vector<BufferId> moved(program_.buffers.size(), kNone);
    std::vector<char> used(program_.buffers.size());
    const auto use = [&](BufferId id) {
      if (id != kNone) used[static_cast<size_t>(id)] = 1;
    };
    for (const Instruction& op : kept) {
      std::ranges::for_each(op.reads, use);
      std::ranges::for_each(op.writes, use);
    }
    // Every stage counts the targets of its samples.
    use(program_.inputs);
    use(program_.targets);
    for (size_t b = 0; b < used.size(); ++b)
      if (used[b]) moved[b] = result.add_buffer(program_.buffers[b]);
    for (const Message& m : messages_)
      if (m.from == place_.stage) result.at(moved[static_cast<size_t>(m.buffer)]).shared = true;
    const auto move = [&](BufferId& id) {
      if (id != kNone) id = moved[static_cast<size_t>(id)];
    };
    for (Instruction& op : kept) {
      std::ranges::for_each(op.reads, move);
      std::ranges::for_each(op.writes, move);
    }
    result.instructions = std::move(kept);
    result.inputs = program_.inputs;
    result.targets = program_.targets;
    result.logits = program_.logits;
    result.loss = program_.loss;
    for (BufferId* id : {&result.inputs, &result.targets, &result.logits, &result.loss}) move(*id);
    keep_units(result, move);
    return result;
  }

  template <class Move>
  void keep_units(Program& result, const Move& move) const {
    for (int64_t layer = first_layer_; layer <= last_layer_; ++layer) {
      const Unit& unit = program_.units[static_cast<size_t>(layer)];
      const auto index = static_cast<int>(result.units.size());
      result.units.push_back({.name = unit.name, .parameters = {}});
      for (const int old : unit.parameters) {
        Parameter p = program_.parameters[static_cast<size_t>(old)];
        p.unit = index;
        move(p.value);
        move(p.gradient);
        check(p.value != kNone, "{} is not used by its own layer", p.name);
        const auto number = static_cast<int>(result.parameters.size());
        result.at(p.value).parameter = number;
        result.units.back().parameters.push_back(number);
        result.parameters.push_back(std::move(p));
      }
    }
    result.model = program_.parameters;
    for (Parameter& p : result.model) p.value = p.gradient = kNone;
    for (const Buffer& b : result.buffers)
      check(b.parameter < 0 ||
                result.parameters[static_cast<size_t>(b.parameter)].value == result.find(b.name),
            "{} is used by another stage than its own", b.name);
  }

  const Program& program_;
  Place place_;
  std::vector<int> stage_of_;  // of every instruction
  int64_t first_layer_ = 0, last_layer_ = 0;
  std::vector<Message> messages_;  // by writer
};

}  // namespace

void keep_stage(Program& program, const std::vector<int64_t>& first_layers, Place place) {
  if (place.stages > 1) program = Cut(program, first_layers, place).run();
}

}  // namespace dstrain
