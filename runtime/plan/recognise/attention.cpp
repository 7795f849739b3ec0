#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/ir/formula/match.h"
#include "runtime/plan/recognise/constant_table.h"
#include "runtime/plan/recognise/recognise.h"
#include "runtime/plan/recognise/sources.h"

namespace dstrain {
namespace {

// What hides a score: e to the power of it is 0 beside any score that is shown.
constexpr float kHidden = -1e9f;

// How a mask hides scores: truth values that say which, or values that are added.
enum class MaskKind : uint8_t { hides, shows, is_added };
enum MaskRole : int { kScores, kMask, kScale, kBelow };

struct MaskPattern {
  Formula formula{};
  MaskKind kind{};
  bool divides = false;  // scores are divided by kScale, not multiplied
};

std::vector<MaskPattern> mask_patterns() {
  const Formula p = Formula::input(kScores), mask = Formula::input(kMask),
                s = Formula::input(kScale), below = Formula::input(kBelow);
  std::vector<MaskPattern> patterns;
  for (const Formula& scores : {p, p * s, p / s}) {
    const bool divides = scores == p / s;
    patterns.push_back({select(mask, below, scores), MaskKind::hides, divides});
    patterns.push_back({select(mask, scores, below), MaskKind::shows, divides});
    patterns.push_back({scores + mask, MaskKind::is_added, divides});
  }
  return patterns;
}

// Returns whether a mask is the same for all samples and heads of a space, and lets query i see keys 0 to i and nothing else.
bool is_causal(const ConstantTable& table, const View& view, const Shape& space, MaskKind kind) {
  const auto& [of_samples, of_heads, of_queries, of_keys, a, b, c, d] = view.strides;
  if ((space[0] > 1 && of_samples != 0) || (space[1] > 1 && of_heads != 0) || view.bounded(space))
    return false;
  for (int64_t query = 0; query < space[2]; ++query)
    for (int64_t key = 0; key < space[3]; ++key) {
      const double value = table.at(view.offset + query * of_queries + key * of_keys);
      const bool added = kind == MaskKind::is_added;
      const bool is_hidden =
          added ? value <= double{kHidden} : (value != 0) == (kind == MaskKind::hides);
      const bool is_shown = added ? value == 0 : !is_hidden;
      if (key <= query ? !is_shown : !is_hidden) return false;
    }
  return true;
}

// Returns whether an instruction reduces the last dimension of a space, of a formula of these operands: the first one has all
// elements, and the others one for each row.
bool reduces_rows(const Instruction* op, Reduction kind, const Formula& formula, const Shape& space,
                  const std::vector<BufferId>& operands) {
  const auto* const reduce = op ? std::get_if<ReduceAttrs>(&op->attrs) : nullptr;
  if (!reduce || reduce->kind != kind || reduce->space != space || reduce->kept != space.rank - 1 ||
      op->reads.size() != operands.size())
    return false;
  const std::optional<Matched> found = match(formula, reduce->formula);
  for (size_t i = 0; found && i < operands.size(); ++i) {
    const int operand = found->operand(static_cast<int>(i));
    if (op->reads[static_cast<size_t>(operand)] != operands[i]) return false;
    const View& view = reduce->views[static_cast<size_t>(operand)];
    if (i == 0 ? !is_dense(view, space) : !is_by_row(view, space)) return false;
  }
  return found.has_value();
}

// Queries, keys or values: elements (samples, heads, tokens, width) of a buffer.
struct Heads {
  BufferId buffer = kNone;
  View view{};
};

class Attentions {
 public:
  explicit Attentions(Program& program)
      : program_(program), sources_(program), patterns_(mask_patterns()) {}

  // Returns the instructions that compute attention in the place of the product of weights and values that `op` is. The last one
  // writes what `op` writes. Returns nothing if the weights are no softmax of causal scores.
  std::vector<Instruction> of(const Instruction& op) {
    const ContractAttrs* const values = product_of(&op);
    if (!values) return {};
    const Shape space{values->batch[0], values->batch[1], values->m, values->k};
    const Instruction* weights = sources_.of(op.reads[0], op.sublayer);
    DropoutAttrs dropout;
    if (weights && weights->op == OpKind::dropout_grad) {
      dropout = attrs_as<DropoutAttrs>(weights->attrs);
      weights = sources_.of(weights->reads[0], op.sublayer);
    }
    if (!weights || !is_dense(values->a, space)) return {};
    const Instruction* const masked = sources_.of(softmax_operand(*weights, space), op.sublayer);
    float scale = 1;
    const Instruction* const scores = masked ? causal_scores(*masked, space, scale) : nullptr;
    const ContractAttrs* const product = scores ? product_of(scores) : nullptr;
    if (!product || product->m != product->n || product->batch != values->batch ||
        product->k != values->n)
      return {};
    View v = values->b;
    std::swap(v.strides[2], v.strides[3]);
    AttentionAttrs attrs{.dropout = dropout.dropout,
                         .site = dropout.site,
                         .heads = space[1],
                         .seq_len = space[2],
                         .kv_heads = space[1]};
    const auto width = static_cast<double>(product->k);
    if (scale != static_cast<float>(1 / std::sqrt(width))) attrs.scale = double{scale};
    return attention(
        op, attrs, width,
        {Heads{scores->reads[0], product->a}, {scores->reads[1], product->b}, {op.reads[1], v}});
  }

 private:
  static const ContractAttrs* product_of(const Instruction* op) {
    const auto* const product = std::get_if<ContractAttrs>(&op->attrs);
    return product && product->batch.rank == 2 && product->summed == 0 ? product : nullptr;
  }

  // Returns what an instruction computes the softmax of over the last dimension; kNone if it does not.
  BufferId softmax_operand(const Instruction& op, const Shape& space) const {
    const Formula x = Formula::input(0), most = Formula::input(1), sum = Formula::input(2);
    const MapAttrs* const map = walking_map(op);
    std::array<BufferId, 3> buffers{};
    if (!map || map->space != space || op.reads.size() != buffers.size()) return kNone;
    const std::optional<Matched> found = match(exponential(x - most) / sum, map->formula);
    for (size_t i = 0; i < buffers.size(); ++i) {
      if (!found) return kNone;
      const int operand = found->operand(static_cast<int>(i));
      const View& view = map->views[static_cast<size_t>(operand)];
      if (i == 0 ? !is_dense(view, space) : !is_by_row(view, space)) return kNone;
      buffers[i] = op.reads[static_cast<size_t>(operand)];
    }
    const auto& [scores, largest, sums] = buffers;
    const bool is_softmax =
        reduces_rows(sources_.of(largest, op.sublayer), Reduction::maximum, x, space, {scores}) &&
        reduces_rows(sources_.of(sums, op.sublayer), Reduction::sum, exponential(x - most), space,
                     {scores, largest});
    return is_softmax ? scores : kNone;
  }

  // Returns the instruction that gives the scores that a map scales and hides behind each query; null if it does another thing.
  const Instruction* causal_scores(const Instruction& op, const Shape& space, float& scale) const {
    const MapAttrs* const map = walking_map(op);
    if (!map || map->space != space || space[2] != space[3]) return nullptr;
    for (const MaskPattern& pattern : patterns_) {
      const std::optional<Matched> found = match(pattern.formula, map->formula, {kScale, kBelow});
      if (!found) continue;
      const auto scores = static_cast<size_t>(found->operand(kScores)),
                 mask = static_cast<size_t>(found->operand(kMask));
      const std::optional<ConstantTable> table = ConstantTable::of(program_, op.reads[mask]);
      const std::optional<float> below = found->constant(kBelow), by = found->constant(kScale);
      const bool hides = pattern.kind == MaskKind::is_added || (below && *below <= kHidden);
      if (!table || !hides || !is_dense(map->views[scores], space) ||
          !is_causal(*table, map->views[mask], space, pattern.kind))
        continue;
      if (by) scale = pattern.divides ? 1 / *by : *by;
      return scale > 0 ? sources_.of(op.reads[scores], op.sublayer) : nullptr;
    }
    return nullptr;
  }

  // Returns copies of queries, keys and values as rows of tokens, attention, and a copy of its result in the place of that of
  // `op`. recognise_heads() takes away what copies it can.
  std::vector<Instruction> attention(const Instruction& op, const AttentionAttrs& attrs,
                                     double of_head, const std::array<Heads, 3>& operands) {
    const Shape by_head = program_.at(op.writes[0]).shape;
    const auto width = static_cast<int64_t>(of_head);
    const Shape rows{by_head.elements() / (attrs.heads * width), attrs.heads * width};
    const Shape by_token{rows[0] / attrs.seq_len, attrs.seq_len, attrs.heads, width};
    const DType dtype = program_.at(op.writes[0]).dtype;
    const std::string name = program_.at(op.writes[0]).name;
    std::vector<Instruction> instructions;
    const auto emit = [&](OpKind kind, const OpAttrs& of_op, std::vector<BufferId> reads,
                          std::vector<BufferId> writes) {
      instructions.push_back({.op = kind,
                              .attrs = of_op,
                              .reads = std::move(reads),
                              .writes = std::move(writes),
                              .group = op.group,
                              .sublayer = op.sublayer});
    };
    const auto buffer = [&](const char* suffix, const Shape& shape, DType type) {
      return program_.add_buffer({.name = name + suffix, .shape = shape, .dtype = type});
    };
    std::vector<BufferId> parts;
    for (const Heads& heads : operands) {
      View view = heads.view;
      std::swap(view.strides[1], view.strides[2]);
      parts.push_back(buffer(".rows", rows, dtype));
      emit(OpKind::map, MapAttrs{Formula::input(0), by_token, {view}}, {heads.buffer},
           {parts.back()});
    }
    const BufferId y = buffer(".att", rows, dtype),
                   lse = buffer(".lse", {by_token[0], attrs.heads, attrs.seq_len}, DType::f32);
    emit(OpKind::attention, attrs, parts, {y, lse});
    View back;
    back.strides = {attrs.seq_len * rows[1], width, rows[1], 1};
    emit(OpKind::map,
         MapAttrs{Formula::input(0), {by_token[0], attrs.heads, attrs.seq_len, width}, {back}}, {y},
         {op.writes[0]});
    return instructions;
  }

  Program& program_;
  Sources sources_;
  std::vector<MaskPattern> patterns_;
};

}  // namespace

void recognise_attention(Program& program) {
  Attentions attentions(program);
  std::vector<Instruction> instructions;
  for (const Instruction& op : program.instructions) {
    std::vector<Instruction> found = attentions.of(op);
    if (found.empty()) found = {op};
    instructions.insert(instructions.end(), found.begin(), found.end());
  }
  program.instructions = std::move(instructions);
}

}  // namespace dstrain
