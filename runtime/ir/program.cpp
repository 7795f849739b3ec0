#include "runtime/ir/program.h"

#include <fmt/core.h>

#include <algorithm>

namespace dstrain {

std::string_view name_of(MemoryClass memory) {
  constexpr std::string_view names[kMemoryClasses] = {"parameters",  "gradients",     "optimizer",
                                                      "activations", "communication", "packed",
                                                      "workspace"};
  return names[static_cast<int>(memory)];
}

std::string_view name_of(Space space) {
  constexpr std::string_view names[kSpaces] = {"device", "host", "disk"};
  return names[static_cast<int>(space)];
}

Range common(Range a, Range b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

Range elements_of(const Parameter& parameter) {
  const int64_t values = held_elements(parameter.part, parameter.shape);
  const bool packed = parameter.blocks != BlockFormat::none;
  return {parameter.offset,
          parameter.offset + (packed ? packed_bytes(parameter.blocks, values) : values)};
}

BufferId Program::add_buffer(Buffer buffer) {
  const auto id = static_cast<BufferId>(buffers.size());
  by_name_.try_emplace(buffer.name, id);
  buffers.push_back(std::move(buffer));
  return id;
}

Instruction& Program::add_at_end(OpKind op, std::vector<BufferId> reads,
                                 std::vector<BufferId> writes, int32_t group) {
  return instructions.emplace_back(Instruction{.op = op,
                                               .when = When::step_end,
                                               .reads = std::move(reads),
                                               .writes = std::move(writes),
                                               .group = group});
}

double Program::whole_loss(std::span<const double> sums) const {
  double whole = 0;
  for (size_t l = 0; l < losses.size(); ++l)
    if (!losses[l].is_metric) whole += static_cast<double>(losses[l].weight) * sums[l];
  return whole;
}

BufferId Program::input(InputRole role) const {
  const auto found = std::ranges::find(inputs, role, &ProgramInput::role);
  return found == inputs.end() ? kNone : found->buffer;
}

std::span<const Unit> Program::trained_units() const {
  return {units.begin(), std::ranges::find(units, true, &Unit::frozen)};
}

int32_t Program::add_group(const std::string& name, int unit) {
  if (groups.back().name != name || groups.back().unit != unit) groups.push_back({name, unit});
  return static_cast<int32_t>(groups.size()) - 1;
}

BufferId Program::find(const std::string& name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? kNone : it->second;
}

BufferId Program::view(BufferId whole, int64_t begin, int64_t count) {
  if (count == at(whole).shape.elements()) return whole;
  Buffer buffer = at(whole);
  buffer.shape = {count};
  buffer.parent = whole;
  buffer.parent_offset = begin;
  if (buffer.copy_of != kNone) buffer.copy_of = view(buffer.copy_of, begin, count);
  buffer.name = part_name(buffer.name, begin, begin + count);
  return add_buffer(std::move(buffer));
}

BufferId Program::root(BufferId id) const {
  while (at(id).parent != kNone) id = at(id).parent;
  return id;
}

BufferId Program::original(BufferId id) const {
  while (at(id).copy_of != kNone) id = at(id).copy_of;
  return id;
}

std::string part_name(const std::string& whole, int64_t begin, int64_t end) {
  return fmt::format("{}[{}:{}]", whole, begin, end);
}

}  // namespace dstrain
