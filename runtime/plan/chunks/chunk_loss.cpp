// The head and the loss in pieces of rows: the logits of a piece are made, give its losses and gradients, and make room
// for those of the next one. Where ranks have the logits of some classes each, they gather the sums of a piece, too.
#include <algorithm>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/chunks/chunks.h"
#include "runtime/plan/chunks/pieces.h"

namespace dstrain {
namespace {

constexpr size_t kAbsent = SIZE_MAX;

bool is_loss(const Instruction& op) {
  return makes_loss(op.op) && rule_of(op.op).reads_targets;
}

class ChunkLoss {
 public:
  ChunkLoss(Program& program, const KernelLibrary& library, int threads)
      : program_(program), library_(library), threads_(threads) {}

  void run(int64_t chunks) {
    const std::vector<Instruction>& list = program_.instructions;
    const auto loss = std::ranges::find_if(list, is_loss);
    if (loss == list.end()) return;  // a stage of a pipeline that is not the last
    check(std::ranges::count_if(list, is_loss) == 1, "several losses cannot be computed in pieces");
    loss_ = static_cast<size_t>(loss - list.begin());
    find_users();
    const int64_t rows = program_.at(at(loss_).reads[1]).shape.elements();
    RowSums sums{.program = program_, .library = library_, .threads = threads_};
    if (weight_grad_ != kAbsent) sums.weight_grads.push_back(at(weight_grad_));
    const int64_t length = piece_length(sums, rows, chunks);
    if (length < rows) divide(rows, length);
  }

 private:
  const Instruction& at(size_t i) const { return program_.instructions[i]; }

  // Returns whether ranks have the logits of some classes each.
  bool in_parts() const { return !rule_of(at(loss_).op).in_parts; }

  static bool sums_in_parts(const Instruction& op) {
    return rule_of(op.op).sum_order == SumOrder::library_parts;
  }

  // Finds the products around the loss, and what brings the sums of all classes. Throws InternalError if anything else uses the logits.
  void find_users() {
    const BufferId logits = at(loss_).reads[0];
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      const Instruction& op = at(i);
      const bool reads = std::ranges::find(op.reads, logits) != op.reads.end();
      const bool writes = std::ranges::find(op.writes, logits) != op.writes.end();
      if (in_parts() && std::ranges::find(op.writes, at(loss_).reads[2]) != op.writes.end())
        gather_ = i;
      if (i == loss_ || (!reads && !writes)) continue;
      const OpAxes axes = axes_of(program_, op);
      const bool product = is_product(axes);
      size_t* const place = writes && product              ? &head_
                            : product                      ? &input_grad_
                            : rule_of(op.op).reads_targets ? &class_sums_
                            : sums_in_parts(op)            ? &weight_grad_
                                                           : nullptr;
      check(place && *place == kAbsent, "{} uses the logits: the loss cannot be computed in pieces",
            name_of(op.op));
      *place = i;
    }
    check(head_ != kAbsent && at(head_).writes.size() == 1, "no product makes the logits alone");
    check(!in_parts() || (class_sums_ != kAbsent && gather_ != kAbsent &&
                          at(gather_).reads[0] == at(class_sums_).writes[0]),
          "no ranks gather the sums of all classes");
  }

  BufferId rows_of(BufferId whole, int64_t rows, int64_t first, int64_t count) {
    return view_of_rows(program_, whole, rows, first, count);
  }

  void divide(int64_t rows, int64_t length) {
    const BufferId losses = program_.add_buffer(
        {.name = "losses", .shape = {rows}, .dtype = DType::f64, .lifetime = Lifetime::micro});
    Buffer piece = program_.at(at(loss_).reads[0]);
    piece.shape.dims[0] = length;
    piece.name = "logits of a piece";
    const BufferId logits = program_.add_buffer(std::move(piece));
    for (int64_t first = 0; first < rows; first += length)
      add_piece(logits, losses, first, std::min(length, rows - first), rows);
    std::vector<Instruction> all;
    for (size_t i = 0; i < program_.instructions.size(); ++i) {
      if (i == head_) std::ranges::move(pieces_, std::back_inserter(all));
      if (i != head_ && i != loss_ && i != input_grad_ && i != weight_grad_ && i != class_sums_ &&
          i != gather_)
        all.push_back(std::move(program_.instructions[i]));
    }
    program_.instructions = std::move(all);
    program_.logits = kNone;
  }

  void add_piece(BufferId logits, BufferId losses, int64_t first, int64_t count, int64_t rows) {
    const BufferId x = rows_of(at(head_).reads[0], rows, first, count);
    const int64_t held = program_.at(logits).shape[0];
    if (count < held) logits = rows_of(logits, held, 0, count);
    Instruction head = at(head_);
    head.reads[0] = x;
    head.writes[0] = logits;
    pieces_.push_back(std::move(head));

    Instruction loss = at(loss_);
    const BufferId targets = rows_of(loss.reads[1], rows, first, count);
    loss.reads = {logits, targets};
    if (in_parts()) loss.reads.push_back(sums_of_all(logits, targets, first, count));
    if (loss.writes.size() > 1) loss.writes[1] = logits;
    if (first + count < rows) {
      auto attrs = attrs_as<CrossEntropyAttrs>(loss.attrs);
      attrs.by_row = true;
      loss.attrs = attrs;
      loss.accumulate = Accumulate::never;
      loss.writes[0] = rows_of(losses, rows, first, count);
    } else {
      loss.reads.push_back(rows_of(losses, rows, 0, first));
    }
    pieces_.push_back(std::move(loss));

    if (weight_grad_ != kAbsent) {
      Instruction grad = at(weight_grad_);
      grad.phase = Phase::forward;
      grad.reads = {logits, x};
      if (first > 0) grad.accumulate = Accumulate::always;
      pieces_.push_back(std::move(grad));
    }
    if (input_grad_ != kAbsent) {
      Instruction grad = at(input_grad_);
      grad.phase = Phase::forward;
      grad.reads[0] = logits;
      grad.writes[0] = rows_of(grad.writes[0], rows, first, count);
      pieces_.push_back(std::move(grad));
    }
  }

  // Adds what gathers the sums of the classes of a piece's rows. Returns those of all ranks.
  BufferId sums_of_all(BufferId logits, BufferId targets, int64_t first, int64_t count) {
    const auto piece = [&](BufferId whole) {
      Buffer sums = program_.at(whole);
      sums.shape.dims[1] = count;
      sums.name = part_name(sums.name, first, first + count);
      return program_.add_buffer(std::move(sums));
    };
    Instruction sums = at(class_sums_), gather = at(gather_);
    const BufferId own = piece(sums.writes[0]), all = piece(gather.writes[0]);
    sums.reads = {logits, targets};
    sums.writes = gather.reads = {own};
    gather.writes = {all};
    pieces_.push_back(std::move(sums));
    pieces_.push_back(std::move(gather));
    return all;
  }

  Program& program_;
  const KernelLibrary& library_;
  const int threads_;
  size_t loss_ = kAbsent, head_ = kAbsent, input_grad_ = kAbsent, weight_grad_ = kAbsent;
  size_t class_sums_ = kAbsent, gather_ = kAbsent;
  std::vector<Instruction> pieces_;
};

}  // namespace

void chunk_loss(Program& program, int64_t chunks, const KernelLibrary& library, int threads) {
  if (chunks > 1) ChunkLoss(program, library, threads).run(chunks);
}

}  // namespace dstrain
