#include "runtime/plan/parallel/rank_forward.h"

#include <utility>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

int64_t rows_of_micro_batch(const Program& program) {
  check(!program.inputs.empty(), "a model without inputs is divided");
  const BufferId labels = program.input(InputRole::labels), array = program.input(InputRole::array);
  if (array != kNone) return program.at(array).shape[0];
  return program.at(labels == kNone ? program.inputs.front().buffer : labels).shape.elements();
}

}  // namespace

RankForward::RankForward(Program& program, const Place& place, int64_t row_multiple)
    : program_(program),
      sequence_(place, Axis::sequence),
      tensor_(place, Axis::tensor),
      row_multiple_(row_multiple),
      rows_(rows_of_micro_batch(program)) {
  const int64_t parts = int64_t{sequence_.ranks} * tensor_.ranks;
  check(rows_ % parts == 0, "{} rows are not divided evenly among {} ranks", rows_, parts);
}

Instruction& RankForward::emit(OpKind kind, OpAttrs attrs, std::vector<BufferId> reads,
                               std::vector<BufferId> writes) {
  list_.push_back({.op = kind,
                   .attrs = std::move(attrs),
                   .reads = std::move(reads),
                   .writes = std::move(writes),
                   .group = like_->group,
                   .sublayer = like_->sublayer});
  return list_.back();
}

void RankForward::on_rows(Instruction op) {
  // Inputs have an axis of samples, and what is cast of them, too.
  const bool of_input = program_.at(op.reads[0]).per_micro;
  for (BufferId& id : op.reads) {
    check(!has_columns(id), "{} works on rows and reads some columns of {}",
          dstrain::name_of(op.op), id == kNone ? "" : name_of(id));
    id = own(id);
  }
  for (const BufferId id : op.writes)
    if (id != kNone && program_.at(id).lifetime == Lifetime::micro &&
        (program_.at(id).shape[0] == rows_ ||
         (of_input && program_.at(id).shape.elements() % rows_ == 0)))
      resize(id);
  list_.push_back(std::move(op));
}

void RankForward::on_columns(const Instruction& op) {
  const int64_t here = program_.at(op.reads[0]).shape[-1];
  const int64_t all = program_.at(op.writes[0]).shape.elements() / rows_;
  for (const BufferId id : op.writes) {
    Shape& shape = program_.at(id).shape;
    check(shape.elements() % rows_ == 0, "{} {} has no rows to divide", name_of(id),
          to_string(shape));
    shape = {sequence_rows(), shape.elements() / rows_ * here / all};
    spread_[id] = Spread::columns;
  }
  keep(op);
}

void RankForward::resize(BufferId id) {
  Shape& shape = program_.at(id).shape;
  const int64_t columns = shape.elements() / rows_;
  check(shape.elements() % rows_ == 0, "{} {} has no rows to divide", name_of(id),
        to_string(shape));
  shape = shape.rank == 1 && columns == 1 ? Shape{own_rows()} : Shape{own_rows(), columns};
  spread_[id] = Spread::own;
}

BufferId RankForward::own(BufferId id) {
  if (id == kNone || spread_.contains(id)) return id;
  return rows_of_input(id, own_part().first, own_rows());
}

BufferId RankForward::rows_of_input(BufferId id, int64_t first, int64_t count) {
  if (id == kNone) return id;
  const Buffer& b = program_.at(id);
  if (!b.per_micro) return id;
  const int64_t per_row = b.shape.elements() / rows_;
  check(b.shape.elements() % rows_ == 0, "{} has not the rows of a micro-batch", b.name);
  const auto key = std::tuple(id, first, count);
  const auto known = views_.find(key);
  if (known != views_.end()) return known->second;
  const BufferId view = program_.view(id, first * per_row, count * per_row);
  if (per_row > 1) program_.at(view).shape = {count, per_row};
  return views_[key] = view;
}

BufferId RankForward::gathered(BufferId id) {
  if (!spread_.contains(id)) return sequence_rows_of(id);  // an input, which each rank reads whole
  const BufferId mine = own(id);
  if (tensor_.alone()) return mine;
  const auto known = gathered_.find(mine);
  if (known != gathered_.end()) return known->second;
  const int64_t columns = program_.at(mine).shape[-1];
  const BufferId all = value("gathered:" + name_of(mine), sequence_rows(), columns, mine);
  collective(OpKind::all_gather, tensor_, mine, all);
  return gathered_[mine] = all;
}

void RankForward::scatter_sum(BufferId part, BufferId result) {
  resize(result);
  collective(OpKind::reduce_scatter, tensor_, part, result);
}

BufferId RankForward::exchanged(BufferId x, const GroupRank& group, int64_t rows, int64_t sections,
                                int64_t copies) {
  const ColumnsAttrs attrs{.parts = group.ranks, .sections = sections, .copies = copies};
  const int64_t columns = program_.at(x).shape[-1] * copies / group.ranks;
  const BufferId split = value("split:" + name_of(x), rows, columns, x);
  const BufferId heads = value("heads:" + name_of(x), rows, columns, x);
  emit(OpKind::split_columns, attrs, {x}, {split});
  collective(OpKind::all_to_all, group, split, heads);
  return heads;
}

void RankForward::divide(BufferId weight, TensorPart::By by, int64_t sections, bool vocabulary) {
  const int index = program_.at(weight).parameter;
  check(index >= 0, "{} is no parameter", name_of(weight));
  Parameter& p = program_.parameter(index);
  const TensorPart part{
      .by = by, .parts = tensor_.ranks, .part = tensor_.rank, .sections = sections};
  if (p.part.by != TensorPart::By::nothing) {
    check(p.part == part, "{} is divided in two ways", p.name);
    return;
  }
  p.part = part;
  Shape held = held_shape(part, p.shape);
  if (vocabulary) held.dims[0] = round_up(held.dims[0], row_multiple_);
  program_.at(weight).shape = held;
}

std::pair<int64_t, int64_t> RankForward::rows_of_part(BufferId weight) const {
  const int64_t n = parameter(weight).shape[0];
  const int64_t first = n * tensor_.rank / tensor_.ranks;
  return {first, n * (tensor_.rank + 1) / tensor_.ranks - first};
}

}  // namespace dstrain
