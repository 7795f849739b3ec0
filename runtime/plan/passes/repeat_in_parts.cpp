#include "runtime/plan/passes/repeat_in_parts.h"

#include <algorithm>
#include <map>
#include <utility>

#include "runtime/ir/rule.h"

namespace dstrain {
namespace {

constexpr size_t kNoInstruction = SIZE_MAX;

class Repeating {
 public:
  Repeating(const Program& program, const std::vector<int>& part_of)
      : program_(program), part_of_(part_of), result_(program), maker_(program.buffers.size()) {
    find_makers();
  }

  Program run(std::vector<int>& parts) {
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      Instruction op = program_.instructions[i];
      for (BufferId& id : op.reads) id = here(id, part_of_[i], op);
      add(std::move(op), part_of_[i], is_repeated(i));
    }
    drop_unread();
    result_.instructions.clear();
    parts.clear();
    for (Placed& placed : list_) {
      if (placed.dropped) continue;
      result_.instructions.push_back(std::move(placed.op));
      parts.push_back(placed.part);
    }
    return std::move(result_);
  }

 private:
  struct Placed {
    Instruction op;
    int part = 0;
    bool repeated = false;  // it follows from inputs and constants
    bool dropped = false;
  };

  // Finds the instructions of the forward pass that follow from inputs and constants alone.
  void find_makers() {
    std::vector<int> writers(program_.buffers.size());
    for (const Instruction& op : program_.instructions)
      for (const BufferId id : op.writes)
        if (id != kNone) ++writers[static_cast<size_t>(id)];
    std::vector<char> given(program_.buffers.size());
    for (const ProgramInput& input : program_.inputs) given[static_cast<size_t>(input.buffer)] = 1;
    for (const ProgramConstant& constant : program_.constants)
      given[static_cast<size_t>(constant.buffer)] = 1;
    std::ranges::fill(maker_, kNoInstruction);
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& op = program_.instructions[i];
      const bool follows =
          op.phase == Phase::forward && rule_of(op.op).repeatable && op.when == When::every_micro &&
          op.accumulate == Accumulate::never &&
          std::ranges::all_of(
              op.reads,
              [&](BufferId id) { return id == kNone || given[static_cast<size_t>(id)] != 0; }) &&
          std::ranges::all_of(op.writes, [&](BufferId id) {
            return id != kNone && writers[static_cast<size_t>(id)] == 1 &&
                   program_.at(id).lifetime == Lifetime::micro && program_.at(id).parent == kNone;
          });
      if (!follows) continue;
      for (const BufferId id : op.writes) {
        given[static_cast<size_t>(id)] = 1;
        maker_[static_cast<size_t>(id)] = i;
      }
    }
  }

  bool is_repeated(size_t i) const {
    const std::vector<BufferId>& writes = program_.instructions[i].writes;
    return !writes.empty() && writes[0] != kNone && maker_[static_cast<size_t>(writes[0])] == i;
  }

  // Returns what has a value in a part: the value itself, or what is computed again there in front of `reader`.
  BufferId here(BufferId id, int part, const Instruction& reader) {
    const size_t maker = id == kNone ? kNoInstruction : maker_[static_cast<size_t>(id)];
    if (maker == kNoInstruction || part_of_[maker] == part) return id;
    if (const auto known = repeated_.find({id, part}); known != repeated_.end())
      return known->second;
    Instruction again = program_.instructions[maker];
    for (BufferId& of : again.reads) of = here(of, part, reader);
    for (BufferId& of : again.writes) {
      Buffer copy = program_.at(of);
      copy.copy_of = of;
      const BufferId fresh = result_.add_buffer(std::move(copy));
      repeated_[{of, part}] = fresh;
      of = fresh;
    }
    again.phase = reader.phase;
    again.group = reader.group;
    again.sublayer = reader.sublayer;
    add(std::move(again), part, true);
    return repeated_.at({id, part});
  }

  void add(Instruction op, int part, bool repeated) {
    list_.push_back({std::move(op), part, repeated});
  }

  // Leaves out what nothing reads any more in the part that it was in.
  void drop_unread() {
    std::vector<int> readers(result_.buffers.size());
    const auto count = [&](BufferId id, int by) {
      if (id != kNone) readers[static_cast<size_t>(result_.root(id))] += by;
    };
    for (const Placed& placed : list_)
      for (const BufferId id : placed.op.reads) count(id, 1);
    count(result_.logits, 1);
    count(result_.log_probs, 1);
    for (size_t i = list_.size(); i-- > 0;) {
      Placed& placed = list_[i];
      placed.dropped = placed.repeated && std::ranges::all_of(placed.op.writes, [&](BufferId id) {
                         return readers[static_cast<size_t>(id)] == 0;
                       });
      if (placed.dropped)
        for (const BufferId id : placed.op.reads) count(id, -1);
    }
  }

  const Program& program_;
  const std::vector<int>& part_of_;
  Program result_;
  std::vector<size_t> maker_;  // by buffer: the instruction that makes it of inputs and constants
  std::map<std::pair<BufferId, int>, BufferId> repeated_;  // by buffer and part
  std::vector<Placed> list_;
};

}  // namespace

Program repeat_in_parts(const Program& program, std::vector<int>& part_of) {
  const std::vector<int> before = part_of;
  return Repeating(program, before).run(part_of);
}

}  // namespace dstrain
