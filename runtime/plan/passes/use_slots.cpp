#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"
#include "runtime/ir/views/view.h"
#include "runtime/plan/passes/passes.h"

namespace dstrain {
namespace {

constexpr int kMostElementwise = 8;  // operations behind the product that makes the logits

// Returns the index of the instruction that writes a buffer.
size_t writer_of(const Program& program, BufferId id) {
  const auto writes = [id](const Instruction& op) {
    return std::ranges::find(op.writes, id) != op.writes.end();
  };
  const auto& list = program.instructions;
  const auto found = std::find_if(list.rbegin(), list.rend(), writes);
  check(found != list.rend(), "nothing writes {}", program.at(id).name);
  return static_cast<size_t>(list.rend() - found) - 1;
}

// Returns the instructions from the product that makes the logits on, the last one first; empty if another operation than
// ones of single elements is among them.
std::vector<size_t> head_of(const Program& program) {
  std::vector<size_t> chain;
  for (BufferId id = program.logits; chain.size() < kMostElementwise;) {
    chain.push_back(writer_of(program, id));
    const Instruction& op = program.instructions[chain.back()];
    const OpAxes axes = axes_of(program, op);
    if (is_product(axes)) return chain;
    if (!maps_elements(axes) || op.reads.size() != 1) break;
    id = op.reads[0];
  }
  return {};
}

// Adds an input of the host, i32.
BufferId add_input(Program& program, std::string_view name, int64_t rows) {
  const BufferId id = program.add_buffer({.name = std::string(name),
                                          .shape = {rows, 1},
                                          .dtype = DType::i32,
                                          .lifetime = Lifetime::step,
                                          .per_micro = true});
  program.inputs.push_back({std::string(name), InputRole::array, {1}, id});
  return id;
}

// Checks that operations work on each row by itself, but for those that only prepare weights.
class RowByRow {
 public:
  explicit RowByRow(const Program& program) : of_rows_(program.buffers.size()) {
    for (const ProgramInput& input : program.inputs) mark(input.buffer);
  }

  void check_op(const Program& program, const Instruction& op) {
    const bool reads_rows = std::ranges::any_of(op.reads, [this](BufferId id) {
      return id != kNone && of_rows_[static_cast<size_t>(id)] != 0;
    });
    if (!reads_rows) return;
    if (!rule_of(op.op).in_slots)
      check(
          axes_of(program, op).along(OperandAxis::row) == Along::mapped || walks_rows(program, op),
          "{} of {} does not work on each row by itself", name_of(op.op), program.group_name(op));
    for (const BufferId id : op.writes)
      if (id != kNone) mark(id);
  }

 private:
  // Returns whether a map through views makes each row of its result of the same row of what has rows.
  bool walks_rows(const Program& program, const Instruction& op) const {
    const auto* const map = std::get_if<MapAttrs>(&op.attrs);
    if (map == nullptr || map->views.empty()) return false;
    const int64_t rows = map->space[0];
    Shape row = map->space;
    row.dims[0] = 1;
    for (size_t i = 0; i < map->views.size(); ++i) {
      const View& view = map->views[i];
      const bool has_rows = of_rows_[static_cast<size_t>(op.reads[i])] != 0;
      const int64_t columns = has_rows ? program.at(op.reads[i]).shape.elements() / rows : 0;
      if (view.strides[0] != columns || view.bounds(0, rows)) return false;
      const auto read = elements_read(view, row);
      if (has_rows && read && (read->first < 0 || read->last >= columns)) return false;
    }
    return true;
  }
  void mark(BufferId id) { of_rows_[static_cast<size_t>(id)] = 1; }

  std::vector<char> of_rows_;  // by buffer: whether it has values of rows
};

}  // namespace

void use_slots(Program& program, int64_t rows, int64_t slots, int64_t positions) {
  Slots all{.count = slots, .positions = positions};
  all.documents = program.input(InputRole::documents);
  check(all.documents != kNone, "the model has no positions that an input says");
  RowByRow alone(program);
  for (const Instruction& op : program.instructions) alone.check_op(program, op);
  all.of_row = add_input(program, kSlotsInput, rows);
  for (Instruction& op : program.instructions)
    if (const auto in_slots = rule_of(op.op).in_slots) in_slots(program, op, all);
}

void take_last_row(Program& program) {
  const std::vector<size_t> head = head_of(program);
  check(!head.empty(), "the logits are no product");
  const BufferId row = add_input(program, kRowInput, 1);
  for (const size_t i : head) {
    Buffer& y = program.at(program.instructions[i].writes[0]);
    y.shape = {1, y.shape[-1]};
  }
  Instruction& product = program.instructions[head.back()];
  Buffer taken = program.at(product.reads[0]);
  taken.name += ":row";
  taken.shape = {1, taken.shape[-1]};
  Instruction take = product;
  take.op = OpKind::embed;
  take.attrs = EmbedAttrs{.seq_len = 1};
  take.reads = {row, product.reads[0]};
  take.writes = {program.add_buffer(std::move(taken))};
  product.reads[0] = take.writes[0];
  program.instructions.insert(
      program.instructions.begin() + static_cast<std::ptrdiff_t>(head.back()), std::move(take));
}

}  // namespace dstrain
