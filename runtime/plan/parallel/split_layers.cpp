#include "runtime/plan/parallel/split_layers.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/ir/ops/attention.h"
#include "runtime/ir/ops/cross_entropy.h"
#include "runtime/plan/parallel/consumers.h"

namespace dstrain {
namespace {

using By = TensorPart::By;

// A rank of one of the two groups.
struct Member {
  int rank = 0, ranks = 1;
  int32_t channel = 0;

  Member(const Place& place, Axis axis)
      : rank(place.rank_in(axis)),
        ranks(place.ranks_in(axis)),
        channel(ranks > 1 ? channel_of(place, axis) : 0) {}
  bool alone() const { return ranks == 1; }
};

// What a rank has of a value.
enum class Spread : uint8_t {
  own,      // its rows of those of its sequence rank
  columns,  // all rows of its sequence rank, and some of their columns
};

int64_t round_up(int64_t n, int64_t to) {
  return (n + to - 1) / to * to;
}

class SplitPass {
 public:
  SplitPass(Program& program, const Place& place, int64_t row_multiple)
      : program_(program),
        sequence_(place, Axis::sequence),
        tensor_(place, Axis::tensor),
        row_multiple_(row_multiple),
        consumers_(program, tensor_.ranks),
        rows_(rows_of_micro_batch()) {
    const int64_t parts = int64_t{sequence_.ranks} * tensor_.ranks;
    check(rows_ % parts == 0, "{} rows are not divided evenly among {} ranks", rows_, parts);
  }

  void run() {
    for (const Instruction& op : program_.instructions) {
      like_ = &op;
      split(op);
    }
    program_.instructions = std::move(list_);
  }

 private:
  int64_t rows_of_micro_batch() const {
    check(!program_.inputs.empty(), "a model without inputs is divided");
    const ProgramInput& first = program_.inputs.front();
    const BufferId labels = program_.input(InputRole::labels);
    return program_.at(labels == kNone ? first.buffer : labels).shape.elements();
  }
  int64_t sequence_rows() const { return rows_ / sequence_.ranks; }
  int64_t own_rows() const { return sequence_rows() / tensor_.ranks; }
  RowsPart sequence_part() const { return {sequence_.rank * sequence_rows(), rows_}; }
  RowsPart own_part() const { return {sequence_part().first + tensor_.rank * own_rows(), rows_}; }

  void split(const Instruction& op) {
    switch (op.op) {
      case OpKind::embed:
        return embed(op);
      case OpKind::linear:
        return linear(op);
      case OpKind::attention:
        return attention(op);
      case OpKind::cross_entropy:
        return cross_entropy(op);
      case OpKind::rotary:
        return rotary(op);
      case OpKind::unpack_weight:
        check(tensor_.alone(), "packed weights are not divided");
        return keep(op);
      case OpKind::add_dropout:
      case OpKind::dropout_grad: {
        Instruction mine = op;
        auto attrs = attrs_as<DropoutAttrs>(op.attrs);
        attrs.part = own_part();
        mine.attrs = attrs;
        return on_rows(std::move(mine));
      }
      case OpKind::accumulate:  // of a registered buffer, which has no rows
        return keep(op);
      case OpKind::cast:  // of an input, else of a registered buffer
        return program_.at(op.reads[0]).per_micro || spread_.contains(op.reads[0]) ? on_rows(op)
                                                                                   : keep(op);
      case OpKind::sum_rows: {  // of this rank's rows: other ranks add theirs
        Instruction mine = op;
        mine.reads[0] = own(op.reads[0]);
        return keep(mine);
      }
      default:
        return by_first_operand(op);
    }
  }

  // Operations on single elements, columns, rows or heads do what they do to what a rank has.
  void by_first_operand(const Instruction& op) {
    const auto found = spread_.find(op.reads[0]);
    const bool columns = found != spread_.end() && found->second == Spread::columns;
    return columns ? on_columns(op) : on_rows(op);
  }

  void keep(const Instruction& op) { list_.push_back(op); }

  Instruction& emit(OpKind kind, OpAttrs attrs, std::vector<BufferId> reads,
                    std::vector<BufferId> writes) {
    Instruction op{.op = kind,
                   .attrs = std::move(attrs),
                   .reads = std::move(reads),
                   .writes = std::move(writes),
                   .group = like_->group,
                   .sublayer = like_->sublayer};
    list_.push_back(std::move(op));
    return list_.back();
  }
  void collective(OpKind kind, const Member& member, BufferId from, BufferId to) {
    emit(kind, {}, {from}, {to}).channel = member.channel;
  }

  // Returns a new value (rows, columns) with the dtype of `like`.
  BufferId value(std::string name, int64_t rows, int64_t columns, BufferId like) {
    return program_.add_buffer(
        {.name = std::move(name), .shape = {rows, columns}, .dtype = program_.at(like).dtype});
  }
  const std::string& name_of(BufferId id) const { return program_.at(id).name; }

  // Gives what an instruction writes the rows that the rank has.
  void resize(BufferId id) {
    Shape& shape = program_.at(id).shape;
    const int64_t columns = shape.elements() / rows_;
    check(shape.elements() % rows_ == 0, "{} {} has no rows to divide", name_of(id),
          to_string(shape));
    shape = shape.rank == 1 && columns == 1 ? Shape{own_rows()} : Shape{own_rows(), columns};
    spread_[id] = Spread::own;
  }

  // The operation works on this rank's rows.
  void on_rows(Instruction op) {
    for (BufferId& id : op.reads) {
      const auto found = spread_.find(id);
      check(found == spread_.end() || found->second == Spread::own,
            "an operation on rows reads some columns of {}", name_of(id));
      id = own(id);
    }
    for (const BufferId id : op.writes) {
      if (id == kNone || program_.at(id).lifetime != Lifetime::micro ||
          program_.at(id).shape.elements() % rows_ != 0 || program_.at(id).shape[0] != rows_)
        continue;
      resize(id);
    }
    list_.push_back(std::move(op));
  }

  // The operation works on this rank's columns, of which its result has as many as its first operand.
  void on_columns(const Instruction& op) {
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

  // Returns what this rank has of the rows of a value: of an input of the model a view.
  BufferId own(BufferId id) {
    if (id == kNone || spread_.contains(id)) return id;
    return rows_of_input(id, own_part().first, own_rows());
  }

  // Returns a view of rows of an input; `id` itself if it is none.
  BufferId rows_of_input(BufferId id, int64_t first, int64_t count) {
    if (id == kNone) return id;
    const Buffer& b = program_.at(id);
    if (!b.per_micro) return id;
    const int64_t per_row = b.shape.elements() / rows_;
    check(b.shape.elements() % rows_ == 0, "{} has not the rows of a micro-batch", b.name);
    const auto key = std::pair(id, first);
    const auto known = views_.find(key);
    if (known != views_.end()) return known->second;
    const BufferId view = program_.view(id, first * per_row, count * per_row);
    if (per_row > 1) program_.at(view).shape = {count, per_row};
    return views_[key] = view;
  }
  BufferId sequence_rows_of(BufferId input) {
    return rows_of_input(input, sequence_part().first, sequence_rows());
  }

  // Returns all rows of its sequence rank of a value of which this rank has some.
  BufferId gathered(BufferId id) {
    const BufferId mine = own(id);
    if (tensor_.alone()) return mine;
    const auto known = gathered_.find(mine);
    if (known != gathered_.end()) return known->second;
    const int64_t columns = program_.at(mine).shape[-1];
    const BufferId all = value("gathered:" + name_of(mine), sequence_rows(), columns, mine);
    collective(OpKind::all_gather, tensor_, mine, all);
    return gathered_[mine] = all;
  }

  // Makes `result` this rank's rows of the sum of what the ranks of the tensor group have in `part`.
  void scatter_sum(BufferId part, BufferId result) {
    resize(result);
    collective(OpKind::reduce_scatter, tensor_, part, result);
  }

  // Gives this rank its part of a parameter.
  void divide(BufferId weight, By by, int64_t sections = 1, bool vocabulary = false) {
    const int index = program_.at(weight).parameter;
    check(index >= 0, "{} is no parameter", name_of(weight));
    Parameter& p = program_.parameters[static_cast<size_t>(index)];
    const TensorPart part{
        .by = by, .parts = tensor_.ranks, .part = tensor_.rank, .sections = sections};
    if (p.part.by != By::nothing) {
      check(p.part == part, "{} is divided in two ways", p.name);
      return;
    }
    p.part = part;
    Shape held = held_shape(part, p.shape);
    if (vocabulary) held.dims[0] = round_up(held.dims[0], row_multiple_);
    program_.at(weight).shape = held;
  }
  const Parameter& parameter(BufferId weight) const {
    return program_.parameters[static_cast<size_t>(program_.at(weight).parameter)];
  }
  // Returns the first row that this rank has of a weight, and how many it has.
  std::pair<int64_t, int64_t> rows_of_part(BufferId weight) const {
    const int64_t n = parameter(weight).shape[0];
    const int64_t first = n * tensor_.rank / tensor_.ranks;
    return {first, n * (tensor_.rank + 1) / tensor_.ranks - first};
  }

  void embed(const Instruction& op) {
    const BufferId ids = op.reads[0], token = op.reads[1], x = op.writes[0];
    const BufferId position = op.reads.size() > 2 ? op.reads[2] : kNone;
    const BufferId documents = op.reads.size() > 3 ? op.reads[3] : kNone;
    auto attrs = attrs_as<EmbedAttrs>(op.attrs);
    if (tensor_.alone()) {
      attrs.part = own_part();
      Instruction mine = op;
      mine.attrs = attrs;
      return on_rows(std::move(mine));
    }
    divide(token, By::rows, 1, true);
    const auto [first, count] = rows_of_part(token);
    EmbedAttrs of_part = attrs;
    of_part.part = sequence_part();
    of_part.first_token = first;
    of_part.tokens = count;
    const int64_t columns = program_.at(x).shape[-1];
    const BufferId part = value("part:" + name_of(x), sequence_rows(), columns, x);
    emit(OpKind::embed, of_part, {sequence_rows_of(ids), token}, {part});
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

  void linear(const Instruction& op) {
    const BufferId x = op.reads[0], y = op.writes[0];
    const auto found = spread_.find(x);
    if (found != spread_.end() && found->second == Spread::columns) return second_product(op);
    const auto use = tensor_.alone() ? std::nullopt : consumers_.columns(y);
    if (!use || program_.at(op.reads[1]).parameter < 0) return on_rows(op);
    Instruction mine = op;
    mine.reads[0] = gathered(x);
    divide(op.reads[1], By::rows, use->sections, use->vocabulary);
    if (op.reads.size() > 2 && op.reads[2] != kNone)
      divide(op.reads[2], By::rows, use->sections, use->vocabulary);
    program_.at(y).shape = {sequence_rows(), program_.at(op.reads[1]).shape[0]};
    spread_[y] = Spread::columns;
    keep(mine);
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
    emit(OpKind::linear, {}, {op.reads[0], weight}, {part});
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

  void rotary(const Instruction& op) {
    auto attrs = attrs_as<RotaryAttrs>(op.attrs);
    Instruction mine = op;
    const bool columns = spread_.at(op.reads[0]) == Spread::columns;
    attrs.part = columns ? sequence_part() : own_part();
    mine.attrs = attrs;
    if (mine.reads.size() > 1)
      mine.reads[1] = columns ? sequence_rows_of(mine.reads[1]) : own(mine.reads[1]);
    return columns ? on_columns(mine) : on_rows(std::move(mine));
  }

  void attention(const Instruction& op) {
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

  // Returns some columns of `rows` rows, where each rank of the group has all columns of some of them. `copies`: ranks that
  // get the same columns.
  BufferId exchanged(BufferId x, const Member& group, int64_t rows, int64_t sections,
                     int64_t copies) {
    const ColumnsAttrs attrs{.parts = group.ranks, .sections = sections, .copies = copies};
    const int64_t columns = program_.at(x).shape[-1] * copies / group.ranks;
    const BufferId split = value("split:" + name_of(x), rows, columns, x);
    const BufferId heads = value("heads:" + name_of(x), rows, columns, x);
    emit(OpKind::split_columns, attrs, {x}, {split});
    collective(OpKind::all_to_all, group, split, heads);
    return heads;
  }

  void cross_entropy(const Instruction& op) {
    const BufferId logits = op.reads[0];
    const auto found = spread_.find(logits);
    Instruction mine = op;
    if (found == spread_.end() || found->second == Spread::own) {
      for (BufferId& id : mine.reads) id = own(id);
      if (op.writes.size() > 1 && op.writes[1] != logits) resize(op.writes[1]);
      return keep(mine);
    }
    const int64_t classes = classes_of(logits), first = classes * tensor_.rank / tensor_.ranks;
    auto attrs = attrs_as<CrossEntropyAttrs>(op.attrs);
    attrs.first_class = first;
    attrs.classes = classes * (tensor_.rank + 1) / tensor_.ranks - first;
    check(attrs.classes > 0, "{} classes are fewer than {} ranks", classes, tensor_.ranks);
    const BufferId targets = sequence_rows_of(op.reads[1]);
    const auto sums = [&](std::string_view what, int64_t parts) {
      return program_.add_buffer({.name = fmt::format("{}:{}", what, name_of(logits)),
                                  .shape = {parts, sequence_rows(), ops::kClassSums}});
    };
    const BufferId own_sums = sums("class_sums", 1),
                   all_sums = sums("all_class_sums", tensor_.ranks);
    emit(OpKind::class_sums, attrs, {logits, targets}, {own_sums});
    collective(OpKind::all_gather, tensor_, own_sums, all_sums);
    mine.op = OpKind::cross_entropy_part;
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
    for (const Instruction& op : list_)
      if (op.op == OpKind::linear && op.writes[0] == logits) return parameter(op.reads[1]).shape[0];
    throw InternalError(fmt::format("{} is not the result of a product", name_of(logits)));
  }

  Program& program_;
  const Member sequence_, tensor_;
  const int64_t row_multiple_;
  const Consumers consumers_;
  const int64_t rows_;             // of a micro-batch
  std::vector<Instruction> list_;  // for this rank
  const Instruction* like_ = nullptr;
  std::unordered_map<BufferId, Spread> spread_;      // of values that have been computed
  std::unordered_map<BufferId, BufferId> gathered_;  // by this rank's rows
  std::map<std::pair<BufferId, int64_t>, BufferId> views_;
};

}  // namespace

void split_layers(Program& program, const Place& place, int64_t row_multiple) {
  if (place.ranks_in(Axis::sequence) * place.ranks_in(Axis::tensor) > 1)
    SplitPass(program, place, row_multiple).run();
}

void separate_replicated(Program& program, const Place& place) {
  if (place.ranks_in(Axis::tensor) == 1) return;
  std::vector<Unit> units;
  for (const Unit& unit : program.units) {
    std::array<std::vector<int>, 2> parameters;  // divided, and replicated
    for (const int index : unit.parameters) {
      const bool replicated = program.parameters[static_cast<size_t>(index)].part.by == By::nothing;
      parameters[replicated ? 1 : 0].push_back(index);
    }
    for (const bool replicated : {false, true}) {
      std::vector<int>& mine = parameters[replicated ? 1 : 0];
      if (mine.empty() && (replicated || !unit.parameters.empty())) continue;
      Unit& apart = units.emplace_back(unit);
      if (replicated) {
        apart.name += ":replicated";
        apart.axes = unit.axes | Axis::tensor;
      }
      apart.parameters = std::move(mine);
    }
  }
  program.units = std::move(units);
  for (size_t u = 0; u < program.units.size(); ++u)
    for (const int index : program.units[u].parameters)
      program.parameters[static_cast<size_t>(index)].unit = static_cast<int>(u);
}

}  // namespace dstrain
