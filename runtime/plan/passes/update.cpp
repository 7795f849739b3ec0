#include <fmt/core.h>
#include <fnmatch.h>

#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/optim/optimizer_rule.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

BufferId state(Program& program, const std::string& name, int64_t elements) {
  return program.add_buffer({.name = name,
                             .shape = {elements},
                             .memory = MemoryClass::optimizer,
                             .lifetime = Lifetime::persistent});
}

bool decays(const Parameter& p, const std::vector<std::string>& exclude) {
  for (const std::string& pattern : exclude)
    if (::fnmatch(pattern.c_str(), p.name.c_str(), 0) == 0) return false;
  return true;
}

struct Segment {
  int64_t begin, end;
  bool decay;
};

// Returns runs of parameters with the same weight decay. Padding belongs to the parameter before it.
std::vector<Segment> segments(const Program& program, const Unit& unit,
                              const std::vector<std::string>& exclude) {
  std::vector<Segment> list;
  for (int index : unit.parameters) {
    const Parameter& p = program.parameters[static_cast<size_t>(index)];
    const bool decay = decays(p, exclude);
    if (!list.empty() && list.back().decay == decay) continue;
    if (!list.empty()) list.back().end = p.offset;
    list.push_back({p.offset, unit.elements, decay});
  }
  return list;
}

// Appends the update of one unit, of whose elements this rank updates `updated`.
class UnitUpdate {
 public:
  UnitUpdate(Program& program, const Job& job, Place place, const Unit& unit, Range updated,
             int32_t group)
      : program_(program),
        job_(job),
        rule_(optimizer_rule(job.optimizer.kind)),
        place_(place),
        unit_(unit),
        updated_(updated),
        group_(group) {
    const bool narrow = program.dtype != DType::f32;
    grads_ = program.find("grads:" + unit.name);
    const BufferId params = program.find("params:" + unit.name);
    master_ = narrow ? state(program, "master:" + unit.name, updated.size()) : params;
    copy_ = narrow ? params : kNone;
    for (const std::string_view slot : state_slots(job.optimizer))
      slots_.push_back(state(program, fmt::format("{}:{}", slot, unit.name), updated.size()));
    // The op has an operand for every slot of its optimizer: absent where the optimizer keeps no state.
    while (slots_.size() < rule_.slots.size() && !rule_.slots[slots_.size()].empty())
      slots_.push_back(kNone);
  }

  void append() {
    if (rule_.scaled_attrs)
      direction_ = program_.add_buffer({.name = "direction:" + unit_.name,
                                        .shape = {updated_.size()},
                                        .memory = MemoryClass::optimizer,
                                        .lifetime = Lifetime::step});
    for (const Segment& s : segments(program_, unit_, job_.weight_decay_exclude)) {
      const Range range = common(updated_, {s.begin, s.end});
      if (range.size() > 0) update_segment(range, s.decay);
    }
    if (rule_.scaled_attrs) scaled_update(square_sums());
  }

 private:
  static Range common(Range a, Range b) {
    return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
  }

  // Returns the view of these elements of the unit in a flat buffer of the unit.
  BufferId part(BufferId buffer, Range range) {
    if (buffer == kNone) return kNone;
    const int64_t held = range_of(program_.at(buffer), unit_, place_).begin;
    return program_.view(buffer, range.begin - held, range.size());
  }

  Instruction& emit(OpKind op, OpAttrs attrs = {}) {
    program_.instructions.push_back(
        {.op = op, .when = When::step_end, .attrs = attrs, .group = group_});
    return program_.instructions.back();
  }

  void update_segment(Range range, bool decay) {
    const OptimizerConfig& o = job_.optimizer;
    std::vector<BufferId> reads{part(grads_, range)}, writes;
    if (rule_.scaled_attrs)
      reads.push_back(part(master_, range));
    else
      writes.push_back(part(master_, range));
    for (const BufferId slot : slots_) writes.push_back(part(slot, range));
    writes.push_back(part(rule_.scaled_attrs ? direction_ : copy_, range));
    Instruction& op =
        emit(rule_.op, rule_.attrs(o, decay ? static_cast<float>(o.weight_decay) : 0));
    op.reads = std::move(reads);
    op.writes = std::move(writes);
  }

  Range elements_of(int index) const {
    const Parameter& p = program_.parameters[static_cast<size_t>(index)];
    return {p.offset, p.offset + p.shape.elements()};
  }

  // Appends the square sums of the weights and of the direction of every parameter. As for the gradient's norm each
  // rank adds the slice that it owns, whatever it updates, so that all stages give the same bits. Returns the pairs of
  // all ranks.
  BufferId square_sums() {
    const auto pairs = 2 * static_cast<int64_t>(unit_.parameters.size());
    const BufferId all = program_.add_buffer({.name = "trust:" + unit_.name,
                                              .shape = {place_.ranks * pairs},
                                              .dtype = DType::f64,
                                              .memory = MemoryClass::optimizer,
                                              .lifetime = Lifetime::step,
                                              .shared = place_.ranks > 1});
    const BufferId mine = program_.view(all, place_.rank * pairs, pairs);
    const Range owned = owned_slice(unit_, place_);
    emit(OpKind::zero).writes = {mine};
    int64_t next = place_.rank * pairs;
    for (const int index : unit_.parameters)
      for (const BufferId values : {master_, direction_}) {
        const BufferId sum = program_.view(all, next++, 1);
        const Range range = common(owned, elements_of(index));
        if (range.size() <= 0) continue;
        const BufferId read = part(values, range);
        Instruction& op = emit(OpKind::sum_squares);
        op.reads = {read};
        op.writes = {sum};
      }
    if (place_.ranks > 1) {
      Instruction& op = emit(OpKind::all_gather);
      op.reads = {mine};
      op.writes = {all};
    }
    return all;
  }

  void scaled_update(BufferId sums) {
    const auto count = static_cast<int64_t>(unit_.parameters.size());
    for (int64_t i = 0; i < count; ++i) {
      const Range range = common(updated_, elements_of(unit_.parameters[static_cast<size_t>(i)]));
      if (range.size() <= 0) continue;
      std::vector<BufferId> reads{part(direction_, range), sums};
      std::vector<BufferId> writes{part(master_, range), part(copy_, range)};
      Instruction& op = emit(rule_.scaled_op, rule_.scaled_attrs(job_.optimizer, i, count));
      op.reads = std::move(reads);
      op.writes = std::move(writes);
    }
  }

  Program& program_;
  const Job& job_;
  const OptimizerRule& rule_;
  const Place place_;
  const Unit& unit_;
  const Range updated_;
  const int32_t group_;
  BufferId grads_ = kNone, master_ = kNone, copy_ = kNone, direction_ = kNone;
  std::vector<BufferId> slots_;
};

}  // namespace

void update(Program& program, const Job& job, Place place, const Residency& residency) {
  const auto units = static_cast<int64_t>(program.units.size());
  const BufferId norms = program.add_buffer(
      {.name = "square_sums", .shape = {units}, .dtype = DType::f64, .lifetime = Lifetime::step});
  const int32_t group = program.add_group("step");
  for (int64_t u = 0; u < units; ++u) {
    const Unit& unit = program.units[static_cast<size_t>(u)];
    const BufferId grads = program.find("grads:" + unit.name);
    const Range owned = owned_slice(unit, place);
    const int64_t held = range_of(program.at(grads), unit, place).begin;
    program.instructions.push_back(
        {.op = OpKind::sum_squares,
         .when = When::step_end,
         .reads = {program.view(grads, owned.begin - held, owned.size())},
         .writes = {program.view(norms, u, 1)},
         .group = group});
  }
  program.instructions.push_back({.op = OpKind::finish_gradients,
                                  .when = When::step_end,
                                  .reads = {norms, program.loss},
                                  .group = group});
  for (size_t u = 0; u < program.units.size(); ++u) {
    const Unit& unit = program.units[u];
    const int32_t layer = program.add_group(unit.name);
    const Range owned = owned_slice(unit, place);
    const Range updated = residency.optimizer ? owned : Range{0, unit.elements};
    UnitUpdate(program, job, place, unit, updated, layer).append();
    if (!residency.optimizer || residency.parameters) continue;
    const BufferId params = program.find("params:" + unit.name);
    program.instructions.push_back({.op = OpKind::all_gather,
                                    .when = When::step_end,
                                    .reads = {program.view(params, owned.begin, owned.size())},
                                    .writes = {params},
                                    .group = layer});
  }
}

void begin_step(Program& program) {
  const int32_t group = program.add_group("step");
  std::vector<Instruction> list;
  list.push_back({.op = OpKind::load_batch,
                  .when = When::step_begin,
                  .writes = {program.inputs, program.targets},
                  .group = group});
  const bool training = program.instructions.back().when == When::step_end;
  if (training)
    list.push_back({.op = OpKind::reduce_counts,
                    .when = When::step_begin,
                    .reads = {program.targets},
                    .group = group});
  program.instructions.insert(program.instructions.begin(), list.begin(), list.end());
}

}  // namespace dstrain
