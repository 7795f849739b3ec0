#include <algorithm>

#include "runtime/ir/rule.h"
#include "runtime/plan/chunks/pieces.h"

namespace dstrain {
namespace {

using Indices = std::set<size_t>;

// The axes of all instructions, and which buffers are gradients.
struct ProgramAxes {
  explicit ProgramAxes(const Program& program) {
    for (const Instruction& op : program.instructions) {
      axes.push_back(axes_of(program, op));
      // What an op of a model makes of gradients is a gradient: their sum, or one times a factor.
      const bool of_gradients = !op.reads.empty() && gradients.contains(op.reads[0]);
      if (axes.back().any() && (of_gradients || !rule_of(op.op).of_model))
        gradients.insert(op.writes.begin(), op.writes.end());
    }
  }

  std::vector<OpAxes> axes;
  std::set<BufferId> gradients;
};

bool is_activated(const Instruction& op) {
  const auto* const attrs = std::get_if<ActivationAttrs>(&op.attrs);
  return rule_of(op.op).of_model && attrs && attrs->activation != Activation::none;
}

// Who writes and reads every buffer, as indices of instructions.
class ValueUses {
 public:
  explicit ValueUses(const Program& program)
      : readers(program.buffers.size()),
        writers(program.buffers.size()),
        viewed(program.buffers.size()) {
    for (size_t i = 0; i < program.instructions.size(); ++i) {
      for (const BufferId id : program.instructions[i].reads)
        if (id != kNone) readers[static_cast<size_t>(id)].push_back(i);
      for (const BufferId id : program.instructions[i].writes)
        if (id != kNone) writers[static_cast<size_t>(id)].push_back(i);
    }
    for (const Buffer& b : program.buffers)
      if (b.parent != kNone) viewed[static_cast<size_t>(b.parent)] = 1;
  }

  std::vector<std::vector<size_t>> readers, writers;
  std::vector<char> viewed;  // whether the buffer has views
};

// The search for one MLP. What returns false has found something that keeps it whole.
class MlpSearch {
 public:
  MlpSearch(const Program& program, const ProgramAxes& axes, const ValueUses& uses)
      : program_(program), axes_(axes), uses_(uses) {}

  // Finds the MLP whose activation is instruction `first`.
  bool find(size_t first) {
    const BufferId value = at(first).writes[0];
    segment_.rows = rows_of(value);
    if (!hidden(value)) return false;
    // Not an iterator: the search adds to the set.
    for (const size_t i : Indices(backward_))
      if (!sums_pieces(at(i).op) && !gradient_op(i)) return false;
    take_sums();
    segment_.makers.assign(makers_.begin(), makers_.end());
    segment_.readers.assign(readers_.begin(), readers_.end());
    segment_.backward.assign(backward_.begin(), backward_.end());
    return !(readers_.empty() && backward_.empty()) && in_one_phase();
  }

  const MlpSegment& segment() const { return segment_; }

 private:
  const Instruction& at(size_t i) const { return program_.instructions[i]; }
  const OpAxes& axes(size_t i) const { return axes_.axes[i]; }
  const std::vector<size_t>& readers_of(BufferId id) const {
    return uses_.readers[static_cast<size_t>(id)];
  }
  const std::vector<size_t>& writers_of(BufferId id) const {
    return uses_.writers[static_cast<size_t>(id)];
  }
  int64_t rows_of(BufferId id) const {
    const Shape& shape = program_.at(id).shape;
    return shape.elements() / std::max<int64_t>(1, shape[-1]);
  }
  // Returns whether pieces of the value can take its place.
  bool divides(BufferId id) const {
    const Buffer& b = program_.at(id);
    return b.lifetime == Lifetime::micro && b.parent == kNone && !b.per_micro && b.parameter < 0 &&
           uses_.viewed[static_cast<size_t>(id)] == 0 && rows_of(id) == segment_.rows;
  }

  // Takes a value that lies between the products, and what makes and reads it.
  bool hidden(BufferId id) {
    if (!segment_.hidden.insert(id).second) return true;
    if (!divides(id) || writers_of(id).size() != 1 || !maker(writers_of(id)[0])) return false;
    return std::ranges::all_of(readers_of(id), [&](size_t i) { return hidden_reader(i, id); });
  }

  // A product of rows that are no hidden values, or an operation on single columns of hidden values.
  bool maker(size_t i) {
    const Instruction& op = at(i);
    if (!rule_of(op.op).of_model) return false;
    const bool product = is_product(axes(i)) && !adds_rows(i);
    if (!product && !maps_elements(axes(i))) return false;
    if (!makers_.insert(i).second) return true;
    const auto take = [&](BufferId id) { return id == kNone || hidden(id); };
    return std::ranges::all_of(op.writes, take) && (product || std::ranges::all_of(op.reads, take));
  }

  // Returns whether a product adds other rows to its own.
  bool adds_rows(size_t i) const {
    for (size_t operand = 1; operand < at(i).reads.size(); ++operand)
      if (at(i).reads[operand] != kNone && axes(i).read(operand).has_columns()) return true;
    return false;
  }

  bool hidden_reader(size_t i, BufferId id) {
    const Instruction& op = at(i);
    const size_t operand = static_cast<size_t>(std::ranges::find(op.reads, id) - op.reads.begin());
    if (rule_of(op.op).of_model) {
      if (!is_product(axes(i))) return makers_.contains(i) || maker(i);
      readers_.insert(i);
      return operand == 0 && std::ranges::count(op.reads, id) == 1;
    }
    // A gradient's rule reads the gradient of a result first, then values.
    backward_.insert(i);
    return operand > 0 && axes(i).read(operand).has_columns() &&
           std::ranges::count(op.reads, id) == 1 &&
           (sums_pieces(op.op) || is_product(axes(i)) || maps_elements(axes(i)));
  }

  // Takes an instruction of the backward pass that makes gradients of hidden values, and what belongs to it.
  bool gradient_op(size_t i) {
    const Instruction& op = at(i);
    const bool product = is_product(axes(i));
    backward_.insert(i);
    if (!product && !maps_elements(axes(i))) return false;
    if (!std::ranges::all_of(op.writes, [&](BufferId id) { return gradient(id); })) return false;
    for (size_t operand = product ? 1 : 0; operand < op.reads.size(); ++operand) {
      const BufferId id = op.reads[operand];
      if (id == kNone || !axes(i).read(operand).has_columns()) continue;
      if (!(axes_.gradients.contains(id) ? gradient(id) : segment_.hidden.contains(id)))
        return false;
    }
    return true;
  }

  bool gradient(BufferId id) {
    if (!segment_.gradients.insert(id).second) return true;
    if (!divides(id)) return false;
    return std::ranges::all_of(writers_of(id), [&](size_t i) { return gradient_op(i); }) &&
           std::ranges::all_of(readers_of(id), [&](size_t i) { return gradient_reader(i, id); });
  }

  bool gradient_reader(size_t i, BufferId id) {
    const Instruction& op = at(i);
    // Gradients of weights, and a product that writes the gradient of an input.
    if (!sums_pieces(op.op) && !is_product(axes(i))) return gradient_op(i);
    backward_.insert(i);
    return op.reads[0] == id;
  }

  // Takes the sums of gradients of an input that the segment alone makes and adds.
  void take_sums() {
    const auto alone = [&](size_t sum, BufferId id) {
      return divides(id) && readers_of(id) == std::vector{sum} &&
             std::ranges::all_of(writers_of(id), [&](size_t i) { return backward_.contains(i); });
    };
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& op = at(i);
      if (rule_of(op.op).of_model || !maps_elements(axes(i)) || backward_.contains(i) ||
          !std::ranges::all_of(op.reads, [&](BufferId id) { return alone(i, id); }))
        continue;
      backward_.insert(i);
      segment_.gradients.insert(op.reads.begin(), op.reads.end());
    }
  }

  bool in_one_phase() const {
    const auto alike = [&](const std::vector<size_t>& list) {
      return std::ranges::all_of(list, [&](size_t i) {
        const Instruction &op = at(i), &first = at(list[0]);
        return op.when == When::every_micro && op.phase == first.phase && op.chunk == first.chunk;
      });
    };
    return alike(segment_.readers) && alike(segment_.backward) &&
           (backward_.empty() || at(segment_.backward[0]).phase == Phase::backward);
  }

  const Program& program_;
  const ProgramAxes& axes_;
  const ValueUses& uses_;
  MlpSegment segment_;
  Indices makers_, readers_, backward_;
};

}  // namespace

std::vector<MlpSegment> find_mlps(const Program& program) {
  const ProgramAxes axes(program);
  const ValueUses uses(program);
  std::vector<MlpSegment> found;
  Indices taken;
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    if (!is_activated(program.instructions[i]) || taken.contains(i)) continue;
    MlpSearch search(program, axes, uses);
    if (!search.find(i)) continue;
    const MlpSegment& segment = search.segment();
    const std::vector<size_t>* const lists[] = {&segment.makers, &segment.readers,
                                                &segment.backward};
    const auto is_taken = [&](size_t index) { return taken.contains(index); };
    if (std::ranges::any_of(lists,
                            [&](auto* list) { return std::ranges::any_of(*list, is_taken); }))
      continue;
    for (const auto* list : lists) taken.insert(list->begin(), list->end());
    found.push_back(segment);
  }
  return found;
}

}  // namespace dstrain
