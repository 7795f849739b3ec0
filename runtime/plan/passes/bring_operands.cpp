// The operands of an update in one space. What is offloaded lives in the host's memory or on disk; the instructions of the
// update have operands in two spaces then, and are given copies of those that are in the other one.
#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/passes/early_reads.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/transfers.h"

namespace dstrain {
namespace {

// Elements of a buffer that is no view.
struct Part {
  BufferId root = kNone;
  Range range{};
};

Part part_of(const Program& program, BufferId id) {
  Part part{id, {0, program.at(id).shape.elements()}};
  for (; program.at(part.root).parent != kNone; part.root = program.at(part.root).parent) {
    part.range.begin += program.at(part.root).parent_offset;
    part.range.end += program.at(part.root).parent_offset;
  }
  return part;
}

// The consecutive instructions of one unit's update, and the transfers around them.
struct UnitStep {
  std::vector<Instruction> fetches{};  // two units before: first hops, where there are two
  std::vector<Instruction> loads{};    // one unit before: they bring what the instructions read
  std::vector<Instruction> body{};     // with the transfers of what they write
  std::vector<Instruction> stores{};   // one unit later: second hops
  bool offloaded = false;              // the unit's optimizer state
};

// What a unit's update uses of a buffer in the other space.
struct Staged {
  Range range{};
  Range loaded{};                // whose old content is needed; empty: of none
  std::vector<Range> written{};  // in the order of the instructions
  size_t last_write = 0;         // index of the instruction
  bool gathered = false;         // by a collective, among ranks that have the same part
  BufferId copy = kNone;         // a buffer of these elements in the space of the update
};

void extend(Range& all, Range by) {
  if (all.size() == 0) all = by;
  all = {std::min(all.begin, by.begin), std::max(all.end, by.end)};
}

class UpdateOperands {
 public:
  UpdateOperands(Program& program, const Job& job)
      : program_(program), own_masters_(job.master_dtype == program.dtype), early_(program, job) {}

  void run() {
    std::vector<Instruction>& list = program_.instructions;
    const auto finish = std::ranges::find_if(list, ends_gradients, &Instruction::op);
    check(finish != list.end(), "the step has no end");
    update_.assign(std::make_move_iterator(finish + 1), std::make_move_iterator(list.end()));
    list.erase(finish + 1, list.end());
    std::vector<UnitStep> steps = unit_steps();
    if (steps.empty()) return;
    // The device begins with what is its own to update, and the host with the rest beside it.
    std::stable_partition(steps.begin(), steps.end(),
                          [](const UnitStep& step) { return !step.offloaded; });
    for (UnitStep& step : steps) early_.take(step.loads);
    early_.insert();
    // The first unit's operands are copied while the norm is found, those of the others while the one before is
    // updated.
    Instruction last = std::move(list.back());
    list.pop_back();
    append(list, steps.front().fetches);
    append(list, steps.front().loads);
    if (steps.size() > 1) append(list, steps[1].fetches);
    list.push_back(std::move(last));
    for (size_t i = 0; i < steps.size(); ++i) {
      if (i + 2 < steps.size()) append(list, steps[i + 2].fetches);
      if (i + 1 < steps.size()) append(list, steps[i + 1].loads);
      append(list, steps[i].body);
      if (i > 0) append(list, steps[i - 1].stores);
    }
    append(list, steps.back().stores);
  }

 private:
  static void append(std::vector<Instruction>& list, std::vector<Instruction>& more) {
    std::ranges::move(more, std::back_inserter(list));
  }

  // Returns the spaces of the unit whose update an instruction belongs to; the device, where it is of none.
  UnitSpaces spaces_of(const Instruction& op) const {
    const int unit = program_.groups[static_cast<size_t>(op.group)].unit;
    return unit < 0 ? UnitSpaces{} : program_.unit(unit).spaces;
  }

  // Returns the instructions of every unit with their copies.
  std::vector<UnitStep> unit_steps() {
    std::vector<UnitStep> steps;
    for (size_t begin = 0; begin < update_.size();) {
      size_t end = begin;
      while (end < update_.size() && update_[end].group == update_[begin].group) ++end;
      steps.push_back(unit_step(begin, end));
      begin = end;
    }
    return steps;
  }

  UnitStep unit_step(size_t begin, size_t end) {
    UnitStep step;
    const UnitSpaces spaces = spaces_of(update_[begin]);
    step.offloaded = spaces.state != Space::device;
    updates_in_ = spaces.update;
    std::map<BufferId, Staged> staged;
    for (size_t i = begin; i < end; ++i) find_staged(i, staged);
    const int32_t group = update_[begin].group;
    for (auto& [root, s] : staged) {
      const Buffer whole = program_.at(root);
      if (whole.space == Space::disk) {  // drives write whole blocks
        check(on_disk_.insert(root).second, "{} is on disk, and its unit is updated in two parts",
              whole.name);
        s.range = {0, whole.shape.elements()};
        const std::vector<Range> written = joined(s.written);
        const bool whole_written = written.size() == 1 && written[0].size() == s.range.size();
        if (s.loaded.size() > 0 || !whole_written) s.loaded = s.range;
      }
      s.copy = program_.add_buffer({.name = "staged:" + whole.name,
                                    .shape = {s.range.size()},
                                    .dtype = whole.dtype,
                                    .memory = MemoryClass::communication,
                                    .copy_of = program_.view(root, s.range.begin, s.range.size()),
                                    .role = whole.role,
                                    .space = updates_in_});
      copies_.insert(s.copy);
      if (s.loaded.size() == 0) continue;
      const BufferId from = program_.view(root, s.loaded.begin, s.loaded.size());
      const BufferId to = program_.view(s.copy, s.loaded.begin - s.range.begin, s.loaded.size());
      std::vector<Instruction> hops = transfer(program_, from, to, of_step(group));
      step.loads.push_back(std::move(hops.back()));
      if (hops.size() > 1) step.fetches.push_back(std::move(hops.front()));
    }
    for (size_t i = begin; i < end; ++i) {
      Instruction& op = update_[i];
      if (rule_of(op.op).done_by == DoneBy::copies) {
        op.reads[0] = here(op.reads[0], staged, true);
        step.body.push_back(std::move(op));
        continue;
      }
      const bool kernel = computes(op.op);
      for (auto* list : {&op.reads, &op.writes})
        for (BufferId& id : *list) id = here(id, staged, kernel);
      if (!kernel) {
        add_collective(std::move(op), step.body);
        add_stores(i, staged, group, step);
        continue;
      }
      step.body.push_back(std::move(op));
      add_stores(i, staged, group, step);
    }
    return step;
  }

  // Adds the operands of instruction `i` that are not in the space where it runs. A collective works on copies
  // too, where the update has them: what it gathers is stored with what has been updated.
  void find_staged(size_t i, std::map<BufferId, Staged>& staged) const {
    const Instruction& op = update_[i];
    const bool copy = rule_of(op.op).done_by == DoneBy::copies;
    // Masters go to the device from where they are updated. A slice of padding alone is not, and may be on disk.
    if (copy && program_.space_of(op.reads[0]) != Space::disk) return;
    const bool kernel = computes(op.op);
    const auto away = [&](BufferId id) {
      const Space space = program_.space_of(id);
      return space != updates_in_ && (kernel || space != Space::device);
    };
    const auto use = [&](BufferId id) -> std::pair<Staged&, Range> {
      const Part part = part_of(program_, id);
      Staged& s = staged[part.root];
      extend(s.range, part.range);
      s.gathered = s.gathered || (!kernel && !copy);
      return {s, part.range};
    };
    for (const BufferId id : op.reads) {
      if (id == kNone || !away(id)) continue;
      const auto [s, range] = use(id);
      extend(s.loaded, range);
    }
    for (const BufferId id : op.writes) {
      if (id == kNone || copy || !away(id)) continue;
      const auto [s, range] = use(id);
      s.written.push_back(range);
      s.last_write = i;
      // Optimizers and collectives work in place, but what is a copy of the masters is overwritten.
      const MemoryClass memory = program_.at(program_.root(id)).memory;
      const bool overwritten = !own_masters_ && memory == MemoryClass::parameters;
      if (kernel && !overwritten) extend(s.loaded, range);
    }
  }

  // Returns the operand `id` of a kernel, or of a collective, in the space of the update.
  BufferId here(BufferId id, const std::map<BufferId, Staged>& staged, bool kernel) {
    if (id == kNone) return kNone;
    const Part part = part_of(program_, id);
    const auto found = staged.find(part.root);
    if (found == staged.end() || (!kernel && !found->second.gathered)) return id;
    return program_.view(found->second.copy, part.range.begin - found->second.range.begin,
                         part.range.size());
  }

  // Adds the copies of what is complete after instruction `i`.
  void add_stores(size_t i, const std::map<BufferId, Staged>& staged, int32_t group,
                  UnitStep& step) {
    for (const auto& [root, s] : staged) {
      if (s.written.empty() || s.last_write != i) continue;
      const bool loaded = s.loaded.size() > 0;
      for (const Range r : loaded ? std::vector{s.range} : joined(s.written)) {
        const BufferId to = program_.view(root, r.begin, r.size());
        // An update that is skipped leaves parameters that are a copy alone.
        store(program_.view(s.copy, r.begin - s.range.begin, r.size()), to, of_step(group, !loaded),
              step);
      }
    }
  }

  // Adds the transfer of a result.
  void store(BufferId from, BufferId to, const Instruction& like, UnitStep& step) {
    std::vector<Instruction> hops = transfer(program_, from, to, like);
    step.body.push_back(std::move(hops.front()));
    if (hops.size() > 1) step.stores.push_back(std::move(hops.back()));
  }

  // Returns the ranges with neighbours joined.
  static std::vector<Range> joined(std::vector<Range> ranges) {
    std::ranges::sort(ranges, {}, &Range::begin);
    std::vector<Range> list;
    for (const Range r : ranges)
      if (!list.empty() && list.back().end >= r.begin)
        list.back().end = std::max(list.back().end, r.end);
      else
        list.push_back(r);
    return list;
  }

  // Adds a collective. It works on the device: what it gathers on the host takes a way round.
  void add_collective(Instruction op, std::vector<Instruction>& body) {
    const int32_t group = op.group;
    std::map<BufferId, BufferId> there;
    const auto on_device = [&](BufferId id) {
      const Part part = part_of(program_, id);
      BufferId& buffer = there.try_emplace(part.root, kNone).first->second;
      if (buffer == kNone) {
        Buffer twin = program_.at(part.root);
        if (!copies_.contains(part.root)) twin.name = "staged:" + twin.name;
        twin.copy_of = part.root;
        twin.memory = MemoryClass::communication;
        twin.lifetime = Lifetime::step;
        twin.space = Space::device;
        buffer = program_.add_buffer(std::move(twin));
      }
      return program_.view(buffer, part.range.begin, part.range.size());
    };
    const auto replace = [&](std::vector<BufferId>& operands, bool arrive,
                             std::vector<Instruction>& transfers) {
      for (BufferId& id : operands) {
        if (id == kNone || program_.space_of(id) == Space::device) continue;
        const BufferId from = id;
        id = on_device(from);
        std::vector<Instruction> hops = arrive ? transfer(program_, from, id, of_step(group))
                                               : transfer(program_, id, from, of_step(group));
        append(transfers, hops);
      }
    };
    std::vector<Instruction> after;
    replace(op.reads, true, body);
    replace(op.writes, false, after);
    body.push_back(std::move(op));
    append(body, after);
  }

  // Returns what transfers of the update have in common.
  static Instruction of_step(int32_t group, bool unless_skipped = false) {
    return {.when = When::step_end, .group = group, .unless_skipped = unless_skipped};
  }

  Program& program_;
  const bool own_masters_;  // the parameters are the masters, as in f32 runs
  EarlyReads early_;
  Space updates_in_ = Space::device;  // of the unit at hand: where its update runs
  std::vector<Instruction> update_;   // what follows finish_gradients
  std::set<BufferId> on_disk_;        // what transfers have been made for
  std::set<BufferId> copies_;         // of what is elsewhere, in the space of an update
};

bool is_away(const Unit& unit) {
  return unit.spaces.values != Space::device || unit.spaces.state != Space::device;
}

}  // namespace

void bring_operands(Program& program, const Job& job) {
  if (std::ranges::any_of(program.trained_units(), is_away)) UpdateOperands(program, job).run();
}

}  // namespace dstrain
