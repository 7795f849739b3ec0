// Gathering of sharded parameters. The list of instructions says when each unit is used, so what DeepSpeed
// finds by tracing (which unit comes next, how far away its next use is) is computed here once. DeepSpeed's
// limits decide, in elements: stage3_max_reuse_distance and stage3_max_live_parameters what stays gathered
// between two uses, the persistence thresholds what always stays, stage3_prefetch_bucket_size what is fetched
// ahead.
#include <algorithm>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <unordered_map>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/ir/tensor_part.h"
#include "runtime/plan/codecs/gather_codecs.h"
#include "runtime/plan/passes/passes.h"
#include "runtime/plan/transfers.h"

namespace dstrain {
namespace {

// A run of instructions that use one unit and no other, but for those with the other parameters of its layer: where a
// layer is frozen in part, their visits overlap.
struct Visit {
  int unit = 0;
  size_t first = 0, last = 0;  // positions in the instruction list
};

// A run of visits between which the unit stays gathered.
struct Window {
  int unit = 0;
  size_t first_visit = 0, last_visit = 0;
};

class GatherPass {
 public:
  GatherPass(Program& program, const Job& job, Place place, const Residency& residency)
      : program_(program),
        job_(job),
        plan_{program, job, residency, place},
        limits_(job.gather),
        in_turns_(job.pipeline.stages > 1),
        shards_(plan_) {
    // What a rank holds whole on its device is where it is used.
    for (const Parameter& p : program.parameters)
      if (held_of(p.unit) != Held::whole || program.unit(p.unit).spaces.values != Space::device)
        unit_of_value_[p.value] = p.unit;
  }

  void run() {
    find_visits();
    find_windows();
    const size_t count = program_.instructions.size();
    std::vector<Instruction> at_start;
    before_.resize(count);
    received_.resize(count);
    for (const Window& window : windows_) {
      const bool whole_step = kept_[static_cast<size_t>(window.unit)];
      std::vector<std::vector<Instruction>> parts = emit(window, whole_step);
      if (whole_step) {
        for (auto& part : parts) append(part, at_start);
        continue;
      }
      // What brings a rank's own part is posted earlier still, so that computation waits for none of it.
      std::vector<size_t> visits(parts.size(), fetch_visit(window));
      for (size_t i = parts.size() - 1; i-- > 0;)
        visits[i] = visits[i + 1] - (can_precede(window, visits[i + 1]) ? 1 : 0);
      for (size_t i = 0; i < parts.size(); ++i) append(parts[i], before_[visits_[visits[i]].first]);
    }
    std::vector<Instruction> list;
    shards_.append_exchanges(list);
    append(at_start, list);
    bool starting = true;
    for (size_t i = 0; i < count; ++i) {
      Instruction& op = program_.instructions[i];
      // What is gathered for the whole step is received at the end of the step's start, unless something there reads
      // it: in a pipeline the stage that has a copy of the parameters is sent them.
      if (starting && op.when != When::step_begin)
        for (const auto& codec : for_step_) codec->receive(list);
      starting = starting && op.when == When::step_begin;
      append(before_[i], list);
      for (const auto& codec : received_[i]) codec->receive(list);
      list.push_back(std::move(op));
    }
    program_.instructions = std::move(list);
  }

 private:
  static void append(std::vector<Instruction>& more, std::vector<Instruction>& list) {
    std::ranges::move(more, std::back_inserter(list));
  }

  int64_t elements(int unit) const { return program_.unit(unit).elements; }
  Held held_of(int unit) const { return program_.unit(unit).buffers.values.held; }
  // Returns whether nothing of another micro-batch runs between the two instructions.
  bool in_one_turn(const Instruction& a, const Instruction& b) const {
    const bool begins = a.when == When::step_begin, follows = b.when == When::step_begin;
    return begins == follows && (!in_turns_ || (a.phase == b.phase && a.chunk == b.chunk));
  }
  bool in_one_turn(const Visit& a, const Visit& b) const {
    return in_one_turn(program_.instructions[a.first], program_.instructions[b.first]);
  }
  int64_t elements_of_visit(size_t visit) const { return elements(visits_[visit].unit); }

  void find_visits() {
    for (size_t i = 0; i < program_.instructions.size(); ++i)
      for (const BufferId id : program_.instructions[i].reads) {
        const auto it = unit_of_value_.find(id);
        if (it == unit_of_value_.end()) continue;
        Visit* visit = visit_of(it->second, i);
        if (!visit) visit = &visits_.emplace_back(Visit{it->second, i, i});
        visit->last = i;
      }
    for (size_t v = 0; v < visits_.size(); ++v) live_.push_back(elements_of_visit(v));
    for (size_t v = 0; v < visits_.size(); ++v)
      for (size_t w = v + 1; w < visits_.size() && visits_[w].first <= visits_[v].last; ++w) {
        live_[v] += elements_of_visit(w);
        live_[w] += elements_of_visit(v);
      }
  }

  // Returns whether two units have parameters of the same layer.
  bool are_siblings(int a, int b) const {
    const auto first = [this](int unit) { return program_.unit(unit).first_sublayer; };
    return first(a) == first(b);
  }

  // Returns the visit of the unit that instruction `i` goes on with; null: it begins one.
  Visit* visit_of(int unit, size_t i) {
    for (size_t v = visits_.size(); v-- > 0;) {
      Visit& visit = visits_[v];
      const bool mine = visit.unit == unit;
      if (!mine && !are_siblings(visit.unit, unit)) return nullptr;
      if (!in_one_turn(program_.instructions[visit.first], program_.instructions[i]))
        return nullptr;
      if (mine) return &visit;
    }
    return nullptr;
  }

  // Returns whether `unit` fits beside what is gathered in visits [begin, end).
  bool fits(int unit, size_t begin, size_t end) const {
    return std::all_of(
        live_.begin() + static_cast<ptrdiff_t>(begin), live_.begin() + static_cast<ptrdiff_t>(end),
        [&](int64_t live) { return live + elements(unit) <= limits_.max_live_elements; });
  }
  void keep(int unit, size_t begin, size_t end) {
    for (size_t v = begin; v < end; ++v) live_[v] += elements(unit);
  }

  void find_windows() {
    kept_.assign(program_.units.size(), false);
    const size_t n = visits_.size();
    std::vector<int64_t> before(n + 1, 0);  // elements of all visits before one
    for (size_t v = 0; v < n; ++v) before[v + 1] = before[v] + elements_of_visit(v);
    std::vector<size_t> next(n, n);  // the unit's next visit
    std::vector<size_t> first(program_.units.size(), n), last(program_.units.size(), n);
    for (size_t v = 0; v < n; ++v) {
      const auto unit = static_cast<size_t>(visits_[v].unit);
      if (first[unit] == n)
        first[unit] = v;
      else
        next[last[unit]] = v;
      last[unit] = v;
    }
    const std::vector<bool> persistent = persistent_units();

    // The nearest reuse first, as long as the limits allow it.
    std::vector<size_t> order(n);
    std::iota(order.begin(), order.end(), size_t{0});
    const auto distance = [&](size_t v) { return before[next[v]] - before[v + 1]; };
    std::erase_if(order, [&](size_t v) { return next[v] == n; });
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return distance(a) < distance(b); });
    std::vector<bool> joined(n, false);  // with the unit's next visit
    for (const size_t v : order) {
      const int unit = visits_[v].unit;
      joined[v] =
          (persistent[static_cast<size_t>(unit)] || distance(v) <= limits_.max_reuse_distance) &&
          fits(unit, v + 1, next[v]);
      if (joined[v]) keep(unit, v + 1, next[v]);
    }

    // From one micro-batch to the next.
    for (size_t unit = 0; unit < program_.units.size(); ++unit) {
      if (first[unit] == n) continue;
      bool whole = true;
      for (size_t v = first[unit]; next[v] != n; v = next[v]) whole = whole && joined[v];
      const size_t a = first[unit], b = last[unit] + 1;
      const int64_t around = before[a] + before[n] - before[b];
      const int index = static_cast<int>(unit);
      const bool reused = job_.batch.accumulation > 1 && around <= limits_.max_reuse_distance;
      kept_[unit] = whole && (persistent[unit] || reused) && fits(index, 0, a) && fits(index, b, n);
      if (!kept_[unit]) continue;
      keep(index, 0, a);
      keep(index, b, n);
    }

    // A window ends with its phase.
    for (size_t v = 0; v < n; ++v)
      joined[v] = joined[v] && (kept_[static_cast<size_t>(visits_[v].unit)] ||
                                in_one_turn(visits_[v], visits_[next[v]]));

    std::vector<bool> inside(n, false);  // continues a window
    for (size_t v = 0; v < n; ++v) {
      if (joined[v]) inside[next[v]] = true;
      if (inside[v]) continue;
      size_t end = v;
      while (joined[end]) end = next[end];
      windows_.push_back({visits_[v].unit, v, end});
    }
    // Those for the whole step are gathered first.
    std::stable_partition(windows_.begin(), windows_.end(), [this](const Window& w) -> bool {
      return kept_[static_cast<size_t>(w.unit)];
    });
  }

  // Chooses as DeepSpeed does: in order, as long as each parameter and their sum are small enough. A unit is
  // one flat range, so all of its parameters must be small.
  std::vector<bool> persistent_units() const {
    std::vector<bool> persistent;
    int64_t sum = 0;
    for (const Unit& unit : program_.units) {
      const bool small = std::all_of(unit.parameters.begin(), unit.parameters.end(), [&](int i) {
        const Parameter& p = program_.parameter(i);
        // Padding counts, so that all ranks of a tensor group choose alike.
        return held_shape(p.part, p.shape).elements() <= limits_.param_persistence;
      });
      persistent.push_back(small && sum + unit.elements <= limits_.model_persistence);
      if (persistent.back()) sum += unit.elements;
    }
    return persistent;
  }

  // Returns whether a part of what brings a window's parameters may be posted at the visit before `visit`.
  bool can_precede(const Window& window, size_t visit) const {
    const int64_t most = std::min(limits_.prefetch_elements, most_in_flight(program_));
    return job_.overlap_comm && visit > 0 && elements(window.unit) <= most &&
           in_one_turn(visits_[visit - 1], visits_[visit]);
  }

  // Returns the visit at which the gather starts: the one before that which needs it, or that one.
  size_t fetch_visit(const Window& window) {
    const size_t v = window.first_visit;
    if (!can_precede(window, v) || !fits(window.unit, v - 1, v)) return v;
    keep(window.unit, v - 1, v);
    return v - 1;
  }

  // Makes the window's instructions read gathered parameters. Returns what brings those: the transfers of the rank's
  // own part from another space, one by one, and last the gather.
  std::vector<std::vector<Instruction>> emit(const Window& window, bool whole_step) {
    const Unit& unit = program_.unit(window.unit);
    const int count = ++windows_of_[window.unit];
    const std::string name = unit.name + (count > 1 ? fmt::format("#{}", count) : "");
    const BufferId gathered =
        program_.add_buffer({.name = "gathered:" + name,
                             .shape = {unit.elements},
                             .dtype = program_.at(unit.buffers.values.id).dtype,
                             .memory = MemoryClass::communication,
                             .lifetime = whole_step ? Lifetime::step : Lifetime::micro,
                             .role = BufferRole::parameters,
                             .gathered_unit = window.unit});
    std::unordered_map<BufferId, BufferId> moved;
    for (const int index : unit.parameters) {
      const Parameter& p = program_.parameter(index);
      BufferId value = p.value;
      if (count > 1) {
        const Buffer copy = program_.at(p.value);
        value = program_.add_buffer(copy);
        moved[p.value] = value;
      }
      program_.at(value).parent = gathered;
      program_.at(value).parent_offset = p.offset;
    }
    const size_t first = visits_[window.first_visit].first, last = visits_[window.last_visit].last;
    for (size_t i = first; i <= last && !moved.empty(); ++i)
      for (BufferId& id : program_.instructions[i].reads)
        if (const auto it = moved.find(id); it != moved.end()) id = it->second;
    const Instruction& user = program_.instructions[first];
    const Instruction like{.when = whole_step ? When::step_begin : user.when,
                           .group = user.group,
                           .phase = user.phase,
                           .chunk = user.chunk};
    GatherOperands operands{.unit = window.unit,
                            .name = name,
                            .held = unit.buffers.values.id,
                            .gathered = gathered,
                            .measures = plan_.residency.measures_codecs && count == 1};
    std::vector<std::vector<Instruction>> parts;
    if (shards_.take(unit)) {
      operands.exact = shards_.add(window.unit, user.group);
      operands.held = unit.buffers.packed;
    } else if (program_.space_of(operands.held) != Space::device) {
      // What a rank holds alone is brought to where it is used, else to where its peers read it.
      Buffer brought{.name = "brought:" + unit.name,
                     .shape = program_.at(operands.held).shape,
                     .dtype = program_.at(operands.held).dtype,
                     .memory = MemoryClass::communication,
                     .lifetime = whole_step ? Lifetime::step : Lifetime::micro,
                     .copy_of = operands.held,
                     .role = BufferRole::parameters};
      const BufferId away = std::exchange(
          operands.held,
          held_of(window.unit) == Held::whole ? gathered : program_.add_buffer(std::move(brought)));
      for (Instruction& hop : transfer(program_, away, operands.held, like))
        parts.push_back({std::move(hop)});
      if (held_of(window.unit) == Held::whole) return parts;
    }
    if (operands.exact == kNone) operands.exact = operands.held;
    std::unique_ptr<Codec> codec;
    if (unit.codecs.parameters == CodecKind::int8_blocks)
      codec = std::make_unique<Int8Gather>(plan_, operands);
    else
      codec = std::make_unique<PlainGather>(plan_, operands);
    codec->send(like, parts.emplace_back());
    const bool at_end_of_start = whole_step && user.when != When::step_begin;
    (at_end_of_start ? for_step_ : received_[first]).push_back(std::move(codec));
    return parts;
  }

  Program& program_;
  const Job& job_;
  const CodecPlan plan_;
  const GatherLimits& limits_;
  const bool in_turns_;  // phases of different micro-batches follow one another
  PackedShards shards_;
  std::unordered_map<BufferId, int> unit_of_value_;
  std::vector<Visit> visits_;  // in the order of the list
  std::vector<int64_t> live_;  // elements gathered during each visit
  std::vector<bool> kept_;     // units that stay gathered for the whole step
  std::vector<Window> windows_;
  std::unordered_map<int, int> windows_of_;  // emitted so far, by unit
  // What is added in front of each instruction: gathers that start there, and those that are received there. Those for
  // the whole step are received when its start ends.
  std::vector<std::vector<Instruction>> before_;
  std::vector<std::vector<std::unique_ptr<Codec>>> received_;
  std::vector<std::unique_ptr<Codec>> for_step_;
};

}  // namespace

void gather(Program& program, const Job& job, Place place, const Residency& residency) {
  if (residency.parameters != Held::whole || job.offload.parameters != OffloadTo::none)
    GatherPass(program, job, place, residency).run();
}

}  // namespace dstrain
