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

// Appends the update of `unit`, of whose elements this rank updates `updated`.
void optimizer_step(Program& program, const Job& job, Place place, const Unit& unit, Range updated,
                    int32_t group) {
  const BufferId params = program.find("params:" + unit.name);
  const BufferId grads = program.find("grads:" + unit.name);
  const bool narrow = program.dtype != DType::f32;
  const int64_t n = updated.size();
  const BufferId master = narrow ? state(program, "master:" + unit.name, n) : params;
  const BufferId copy = narrow ? params : kNone;
  const OptimizerConfig& o = job.optimizer;
  const OptimizerRule& rule = optimizer_rule(o.kind);
  std::vector<BufferId> slots;
  for (const std::string_view slot : state_slots(o))
    slots.push_back(state(program, fmt::format("{}:{}", slot, unit.name), n));
  // The op has an operand for every slot of its optimizer: absent where the optimizer keeps no state.
  while (slots.size() < rule.slots.size() && !rule.slots[slots.size()].empty())
    slots.push_back(kNone);
  for (const Segment& s : segments(program, unit, job.weight_decay_exclude)) {
    const Range range{std::max(s.begin, updated.begin), std::min(s.end, updated.end)};
    if (range.size() <= 0) continue;
    const auto part = [&](BufferId b) {
      if (b == kNone) return kNone;
      const int64_t held = range_of(program.at(b), unit, place).begin;
      return program.view(b, range.begin - held, range.size());
    };
    Instruction op{.op = rule.op, .when = When::step_end, .group = group};
    op.attrs = rule.attrs(o, s.decay ? static_cast<float>(o.weight_decay) : 0.0f);
    op.reads = {part(grads)};
    op.writes = {part(master)};
    for (const BufferId slot : slots) op.writes.push_back(part(slot));
    op.writes.push_back(part(copy));
    program.instructions.push_back(std::move(op));
  }
}

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
    optimizer_step(program, job, place, unit, residency.optimizer ? owned : Range{0, unit.elements},
                   layer);
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
