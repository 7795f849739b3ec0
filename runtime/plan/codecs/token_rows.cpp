// Sparse gradients: a micro-batch changes the rows of the embedding's table that its tokens have, so ranks send these
// rows in place of the table where they are fewer. The rows of all ranks lie one behind the other, in rank order, in
// the run's dtype; embed_token_grad adds them in that order in f32, so that every rank has the same bits. What follows
// in the unit, the position table and the padding, is added over ranks as before.
#include <algorithm>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/plan/codecs/codecs.h"

namespace dstrain {
namespace {

class TokenRows {
 public:
  TokenRows(Program& program, Place place) : program_(program), place_(place) {
    const auto writer = std::ranges::find(program.instructions, OpKind::embed_token_grad,
                                          [](const Instruction& op) { return op.op; });
    check(writer != program.instructions.end(), "the program has no token embedding");
    gradient_ = writer->writes[0];
    const auto writes = [this](const Instruction& op) {
      return std::ranges::find(op.writes, gradient_) != op.writes.end();
    };
    check(std::ranges::count_if(program.instructions, writes) == 1,
          "the gradient of the token embedding has several parts");
    const Parameter table = *std::ranges::find(program.parameters, gradient_,
                                               [](const Parameter& p) { return p.gradient; });
    const Unit& unit = program.units[static_cast<size_t>(table.unit)];
    check(table.offset == 0, "the token embedding is not the first parameter of its unit");
    // Without another parameter only padding follows, whose gradient is 0 on every rank.
    const bool alone = unit.parameters.size() == 1;
    rest_ = {
        alone ? unit.elements : program.parameters[static_cast<size_t>(unit.parameters[1])].offset,
        unit.elements};
    grads_ = unit.buffers.gradients.id;
    micro_ = unit.buffers.micro_gradients.id;
    wire_ = unit.buffers.wire.id;
  }

  void run() {
    if (wire_ != kNone) program_.at(wire_).shape = {rest_.size()};
    std::vector<Instruction> list;
    for (Instruction& op : program_.instructions) {
      if (op.op == OpKind::embed_token_grad) gather(op, list);
      if (!sends_unit(op)) {
        list.push_back(std::move(op));
        continue;
      }
      // Where a micro-batch's gradients reach the step's by the wire alone, those of the table are added beside them.
      Instruction table = op;
      const bool adds = op.op == OpKind::accumulate && op.when == When::every_micro;
      if (rest_.size() > 0) {
        leave_table_out(op);
        list.push_back(std::move(op));
      }
      if (adds) {
        table.reads = {program_.view(micro_, 0, rest_.begin)};
        table.writes = {program_.view(grads_, 0, rest_.begin)};
        list.push_back(std::move(table));
      }
    }
    program_.instructions = std::move(list);
  }

 private:
  // Adds the exchange of ids and rows in front of the instruction that reads them. A rank's own rows are computed where
  // they are sent from.
  void gather(Instruction& op, std::vector<Instruction>& list) {
    const BufferId d_x = op.reads[0], ids = op.reads[1];
    const BufferId rows = add_gathered("token_rows", d_x), all_ids = add_gathered("token_ids", ids);
    Buffer& own = program_.at(d_x);
    check(own.parent == kNone, "{} lies in another buffer", own.name);
    own.parent = rows;
    own.parent_offset = place_.rank() * own.shape.elements();
    for (const auto& [from, to] : {std::pair{ids, all_ids}, std::pair{d_x, rows}}) {
      list.push_back(op);
      Instruction& sent = list.back();
      sent.op = OpKind::all_gather;
      sent.attrs = {};
      sent.accumulate = Accumulate::never;
      sent.reads = {from};
      sent.writes = {to};
    }
    op.reads = {rows, all_ids};
  }

  BufferId add_gathered(const std::string& name, BufferId part) {
    const int64_t elements = program_.at(part).shape.elements();
    return program_.add_buffer({.name = name,
                                .shape = {place_.ranks() * elements},
                                .dtype = program_.at(part).dtype,
                                .memory = MemoryClass::communication});
  }

  bool uses(const Instruction& op, BufferId id) const {
    return id != kNone && (op.reads[0] == id || op.writes[0] == id);
  }
  // Returns whether an instruction belongs to the unit's way over the wire.
  bool sends_unit(const Instruction& op) const {
    if (op.op == OpKind::all_reduce) return uses(op, grads_) || uses(op, micro_) || uses(op, wire_);
    return (op.op == OpKind::cast || op.op == OpKind::accumulate) && uses(op, wire_);
  }

  BufferId without_table(BufferId id) {
    return id == wire_ ? wire_ : program_.view(id, rest_.begin, rest_.size());
  }
  void leave_table_out(Instruction& op) {
    const bool in_place = op.reads[0] == op.writes[0];
    op.reads[0] = without_table(op.reads[0]);
    op.writes[0] = in_place ? op.reads[0] : without_table(op.writes[0]);
  }

  Program& program_;
  const Place place_;
  BufferId gradient_ = kNone, grads_ = kNone, micro_ = kNone, wire_ = kNone;
  Range rest_;  // of the unit, behind the table
};

}  // namespace

void gather_token_rows(Program& program, Place place) {
  TokenRows(program, place).run();
}

}  // namespace dstrain
