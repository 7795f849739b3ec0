#include <algorithm>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/ir/ops/attention.h"
#include "runtime/ir/ops/cross_entropy.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/parallel/consumers.h"
#include "runtime/plan/parallel/parallel.h"
#include "runtime/plan/parallel/rank_forward.h"

namespace dstrain {
namespace {

using By = TensorPart::By;

class SplitPass : RankForward {
 public:
  SplitPass(Program& program, const Place& place, int64_t row_multiple)
      : RankForward(program, place, row_multiple), consumers_(program, tensor_.ranks) {}

  void run() {
    const std::vector<Instruction>& whole = program_.instructions;
    // What an axis is may follow from the shapes of the whole model, which change below.
    std::vector<OpAxes> axes;
    for (const Instruction& op : whole) axes.push_back(axes_of(program_, op));
    for (size_t i = 0; i < whole.size(); ++i) {
      like_ = &whole[i];
      split(whole[i], axes[i]);
    }
    program_.instructions = std::move(list_);
  }

 private:
  void split(const Instruction& op, const OpAxes& axes) {
    // It works on a registered buffer or on a weight, which have no rows to divide.
    if (!has_rows(op.reads[0])) return keep(op);
    check(
        axes.any() || !rule_of(op.op).walks_space,
        "{} reads operands through views, which ranks of a sequence or tensor group cannot divide",
        dstrain::name_of(op.op));
    const OperandAxes first = axes.read(0);
    if (axes.along(OperandAxis::row) == Along::whole) return trade(op);
    if (is_product(axes)) return product(op);
    if (is_lookup(axes)) return lookup(op);
    if (!has_columns(op.reads[0]))
      return axes.along(OperandAxis::row) == Along::contracted ? sum(op, axes) : on_own_rows(op);
    const Along along = first.has_columns() ? axes.along(first.last()) : Along::whole;
    check(along != Along::whole, "{} of some columns", dstrain::name_of(op.op));
    return along == Along::contracted ? in_parts(op) : on_own_columns(op, axes);
  }

  // Returns whether a value has the rows of a micro-batch: of an input, or of what has been computed of inputs.
  bool has_rows(BufferId id) const { return program_.at(id).per_micro || spread_.contains(id); }

  // Returns whether an operation takes rows of a table, which is divided by its rows: each rank adds zeros for the others.
  static bool is_lookup(const OpAxes& axes) {
    return axes.read(1).is(OperandAxis::classes, OperandAxis::channel) &&
           axes.along(OperandAxis::classes) == Along::contracted;
  }

  void on_own_rows(Instruction op) {
    set_part(op.attrs, own_part());
    on_rows(std::move(op));
  }

  void on_own_columns(Instruction op, const OpAxes& axes) {
    set_part(op.attrs, sequence_part());
    for (size_t i = 0; i < op.reads.size(); ++i) {
      BufferId& id = op.reads[i];
      id = sequence_rows_of(id);
      check(id == kNone || !axes.read(i).has_columns() || has_columns(id),
            "{} works on some columns, and this rank has rows of {}", dstrain::name_of(op.op),
            id == kNone ? "" : name_of(id));
    }
    on_columns(op);
  }

  // Adds over this rank's rows: other ranks add theirs.
  void sum(Instruction op, const OpAxes& axes) {
    for (BufferId& id : op.reads) id = own(id);
    for (size_t i = 0; i < op.writes.size(); ++i)
      if (axes.write(i).has(OperandAxis::row) && !spread_.contains(op.writes[i]))
        resize(op.writes[i]);
    keep(op);
  }

  // A vocabulary may be known only when the data are read. The configuration's is refused before.
  void require_classes(int64_t classes) const {
    if (classes < tensor_.ranks)
      fail_user(
          "tensor_parallel.autotp_size: the model has {} tokens or labels to tell apart, and each "
          "of "
          "{} ranks needs one at least: use {} ranks at most",
          classes, tensor_.ranks, classes);
  }

  void lookup(const Instruction& op) {
    const BufferId ids = op.reads[0], token = op.reads[1], x = op.writes[0];
    const BufferId position = op.reads.size() > 2 ? op.reads[2] : kNone;
    const BufferId documents = op.reads.size() > 3 ? op.reads[3] : kNone;
    auto attrs = attrs_as<EmbedAttrs>(op.attrs);
    if (tensor_.alone()) return on_own_rows(op);
    require_classes(parameter(token).shape[0]);
    divide(token, By::rows, 1, true);
    const auto [first, count] = rows_of_part(token);
    EmbedAttrs of_part = attrs;
    of_part.part = sequence_part();
    of_part.first_token = first;
    of_part.tokens = count;
    const int64_t columns = program_.at(x).shape[-1];
    const BufferId part = value("part:" + name_of(x), sequence_rows(), columns, x);
    emit(op.op, of_part, {sequence_rows_of(ids), token}, {part});
    if (position == kNone) return scatter_sum(part, x);
    const BufferId tokens = value("tokens:" + name_of(x), rows_, columns, x);
    scatter_sum(part, tokens);
    attrs.part = own_part();
    add_rows(tokens, position, own(documents), attrs, x);
  }

  // x = tokens + the table's row of each position.
  void add_rows(BufferId from, BufferId table, BufferId documents, const EmbedAttrs& attrs,
                BufferId to) {
    std::vector<BufferId> reads{from, table};
    if (documents != kNone) reads.push_back(documents);
    resize(to);
    emit(OpKind::add_rows, attrs, std::move(reads), {to});
  }

  void product(const Instruction& op) {
    const BufferId x = op.reads[0], y = op.writes[0];
    if (has_columns(x)) return second_product(op);
    if (tensor_.alone() || program_.at(op.reads[1]).parameter < 0) return on_rows(op);
    const auto use = is_adapter_product(program_, op, AdapterMatrix::a)   ? std::nullopt
                     : is_adapter_product(program_, op, AdapterMatrix::b) ? use_of_base(op.reads[1])
                                                                          : consumers_.columns(y);
    const BufferId bias = op.reads.size() > 2 ? op.reads[2] : kNone;
    const bool computed_bias = bias != kNone && program_.at(bias).parameter < 0;
    if (!use || computed_bias) return on_rows(op);
    if (use->vocabulary) vocabulary_.insert(op.reads[1]);
    Instruction mine = op;
    mine.reads[0] = gathered(x);
    divide(op.reads[1], By::rows, use->sections, use->vocabulary);
    if (bias != kNone) divide(bias, By::rows, use->sections, use->vocabulary);
    program_.at(y).shape = {sequence_rows(), program_.at(op.reads[1]).shape[0]};
    spread_[y] = Spread::columns;
    keep(mine);
  }

  // Returns how the product is divided whose adapter's second matrix is given: what an adapter makes is divided likewise.
  // Its first matrix is whole where its input is rows, as ranks can gather the few columns that it makes.
  std::optional<ColumnUse> use_of_base(BufferId adapter) const {
    const Parameter& b = parameter(adapter);
    const auto base = std::ranges::find(program_.parameters, b.adapts, &Parameter::name);
    check(base != program_.parameters.end(), "{} is the adapter of no weight", b.name);
    if (base->part.by != By::rows) return std::nullopt;
    return ColumnUse{.sections = base->part.sections,
                     .vocabulary = vocabulary_.contains(base->value)};
  }

  // The product of some columns of x: a part of a sum, to which the bias and the activation come afterwards.
  void second_product(const Instruction& op) {
    const BufferId weight = op.reads[1], y = op.writes[0];
    const BufferId bias = op.reads.size() > 2 ? op.reads[2] : kNone;
    const Activation activation = attrs_as<ActivationAttrs>(op.attrs).activation;
    divide(weight, By::columns);
    const int64_t columns = program_.at(y).shape[-1];
    const auto step = [&](std::string_view what) {
      return value(fmt::format("{}:{}", what, name_of(y)), rows_, columns, y);
    };
    const BufferId part = value("part:" + name_of(y), sequence_rows(), columns, y);
    emit(op.op, {}, {op.reads[0], weight}, {part});
    BufferId sum = bias == kNone && activation == Activation::none ? y : step("sum");
    scatter_sum(part, sum);
    if (bias != kNone) {
      const BufferId with = activation == Activation::none ? y : step("biased");
      add_rows(sum, bias_row(bias), kNone, {.seq_len = 1}, with);
      sum = with;
    }
    if (activation == Activation::none) return;
    resize(y);
    emit(OpKind::activation, op.attrs, {sum}, {y});
  }
  // A bias is a table of one row.
  BufferId bias_row(BufferId bias) {
    Shape& shape = program_.at(bias).shape;
    shape = {1, shape.elements()};
    return bias;
  }

  // Each rank has some heads of all rows of its samples, as scores need those.
  void trade(const Instruction& op) {
    const ops::AttentionInputs inputs(op);
    const BufferId y = op.writes[0], lse = op.writes[1];
    auto attrs = attrs_as<AttentionAttrs>(op.attrs);
    const int64_t ranks = int64_t{tensor_.ranks} * sequence_.ranks;
    const int64_t kv_heads = attrs.kv_heads > 0 ? attrs.kv_heads : attrs.heads;
    check(attrs.heads % ranks == 0 &&
              (kv_heads % tensor_.ranks == 0 || tensor_.ranks % kv_heads == 0),
          "{} heads of queries, {} of keys, are not divided evenly among {} ranks", attrs.heads,
          kv_heads, ranks);
    const int64_t kv_here = std::max<int64_t>(1, kv_heads / tensor_.ranks), all_heads = attrs.heads;
    check(kv_here % sequence_.ranks == 0 || sequence_.ranks % kv_here == 0,
          "{} heads of keys are not dealt out to {} sequence ranks", kv_here, sequence_.ranks);
    attrs.heads /= ranks;
    attrs.first_head = (int64_t{tensor_.rank} * sequence_.ranks + sequence_.rank) * attrs.heads;
    attrs.kv_heads = std::max<int64_t>(1, kv_here / sequence_.ranks);
    Instruction mine = op;
    mine.attrs = attrs;
    for (size_t i = 0; i < inputs.count; ++i) {
      const bool keys = inputs.count == 3 && i > 0;
      const BufferId x =
          keys && kv_heads < tensor_.ranks
              ? exchanged(op.reads[i], tensor_, sequence_rows(), 1, tensor_.ranks / kv_heads)
              : op.reads[i];
      mine.reads[i] = heads_of_all_rows(x, inputs.count == 1 ? 3 : 1,
                                        keys ? std::max<int64_t>(1, sequence_.ranks / kv_here) : 1);
    }
    const int64_t columns = program_.at(y).shape[-1];
    program_.at(lse).shape = {program_.at(lse).shape[0], attrs.heads, attrs.seq_len};
    check(columns % all_heads == 0, "{} columns of {} heads", columns, all_heads);
    spread_[y] = tensor_.alone() ? Spread::own : Spread::columns;
    program_.at(y).shape = {sequence_rows(), columns / tensor_.ranks};
    if (sequence_.alone()) return keep(mine);
    const BufferId here = value("heads:" + name_of(y), rows_, columns / ranks, y);
    mine.writes[0] = here;
    keep(mine);
    const BufferId back = value("rows:" + name_of(y), rows_, columns / ranks, y);
    collective(OpKind::all_to_all, sequence_, here, back);
    emit(OpKind::join_columns, ColumnsAttrs{.parts = sequence_.ranks}, {back}, {y});
  }

  // Returns some heads of the rows of all sequence ranks, where this rank has all heads of its rows.
  BufferId heads_of_all_rows(BufferId x, int64_t sections, int64_t copies) {
    return sequence_.alone() ? x : exchanged(x, sequence_, rows_, sections, copies);
  }

  // A loss of the logits of some classes.
  void in_parts(const Instruction& op) {
    const auto ops = rule_of(op.op).in_parts;
    check(ops.has_value(), "{} of some columns", dstrain::name_of(op.op));
    const BufferId logits = op.reads[0];
    Instruction mine = op;
    const int64_t classes = classes_of(logits), first = classes * tensor_.rank / tensor_.ranks;
    require_classes(classes);
    auto attrs = attrs_as<CrossEntropyAttrs>(op.attrs);
    attrs.first_class = first;
    attrs.classes = classes * (tensor_.rank + 1) / tensor_.ranks - first;
    attrs.all_classes = classes;
    const BufferId targets = sequence_rows_of(op.reads[1]);
    const auto sums = [&](std::string_view what, int64_t parts) {
      return program_.add_buffer({.name = fmt::format("{}:{}", what, name_of(logits)),
                                  .shape = {parts, sequence_rows(), ops::class_sums_of(attrs)}});
    };
    const BufferId own_sums = sums("class_sums", 1),
                   all_sums = sums("all_class_sums", tensor_.ranks);
    emit(ops->own, attrs, {logits, targets}, {own_sums});
    collective(OpKind::all_gather, tensor_, own_sums, all_sums);
    mine.op = ops->all;
    mine.attrs = attrs;
    mine.reads = {logits, targets, all_sums};
    if (op.writes.size() > 1 && op.writes[1] != logits)
      program_.at(op.writes[1]).shape = program_.at(logits).shape;
    for (ProgramLoss& loss : program_.losses)
      if (loss.sum == op.writes[0]) loss.replicated = true;
    keep(mine);
  }
  // Returns the classes of logits of which this rank has a part.
  int64_t classes_of(BufferId logits) const {
    for (const Instruction& op : list_) {
      if (op.writes[0] != logits) continue;
      if (is_product(axes_of(program_, op))) return parameter(op.reads[1]).shape[0];
      return classes_of(op.reads[0]);  // of each column by itself, as the sum with an adapter's
    }
    throw InternalError(fmt::format("{} is not the result of a product", name_of(logits)));
  }

  const Consumers consumers_;
  std::unordered_set<BufferId> vocabulary_;  // weights with a row for each class of the loss
};

}  // namespace

void split_layers(Program& program, const Place& place, int64_t row_multiple) {
  if (place.ranks_in(Axis::sequence) * place.ranks_in(Axis::tensor) > 1)
    SplitPass(program, place, row_multiple).run();
}

}  // namespace dstrain
