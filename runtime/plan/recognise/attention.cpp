#include <array>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/ir/formula/match.h"
#include "runtime/plan/recognise/composed.h"
#include "runtime/plan/recognise/constant_table.h"
#include "runtime/plan/recognise/recognise.h"
#include "runtime/plan/recognise/sources.h"

namespace dstrain {
namespace {

// What hides a score: e to the power of it is 0 beside any score that is shown.
constexpr float kHidden = -1e9f;

// How a mask hides scores: truth values that say which, or values that are added. Or there is none.
enum class MaskKind : uint8_t { none, hides, shows, is_added };
struct MaskOperand {
  static constexpr int kScores = 0, kMask = 1, kScale = 2, kBelow = 3;
};

struct MaskPattern {
  Formula formula{};
  MaskKind kind{};
  bool divides = false;  // scores are divided by MaskOperand::kScale, not multiplied
};

std::vector<MaskPattern> mask_patterns() {
  const Formula p = Formula::input(MaskOperand::kScores), mask = Formula::input(MaskOperand::kMask),
                s = Formula::input(MaskOperand::kScale),
                below = Formula::input(MaskOperand::kBelow);
  std::vector<MaskPattern> patterns;
  for (const Formula& scores : {p, p * s, p / s}) {
    const bool divides = scores == p / s;
    if (scores != p) patterns.push_back({scores, MaskKind::none, divides});
    patterns.push_back({select(mask, below, scores), MaskKind::hides, divides});
    patterns.push_back({select(mask, scores, below), MaskKind::shows, divides});
    patterns.push_back({scores + mask, MaskKind::is_added, divides});
  }
  return patterns;
}

// The keys that queries see: those up to their own, of which the last `window` if that is not 0, or all.
struct SeenKeys {
  bool causal = true;
  int64_t window = 0;
};

// Which scores of a space (samples, heads, queries, keys) a mask shows.
class Mask {
 public:
  Mask(const ConstantTable& table, const View& view, const Shape& space, MaskKind kind)
      : table_(table), view_(view), space_(space), kind_(kind) {}

  // Returns the keys that the mask shows. Nothing if it shows others.
  std::optional<SeenKeys> seen_keys() const {
    if (view_.bounded(space_) || space_[2] != space_[3]) return std::nullopt;
    const int64_t tokens = space_[2];
    int64_t window = 0;
    while (window < tokens && shows(0, 0, tokens - 1, tokens - 1 - window).value_or(false))
      ++window;
    if (shows_where([](int64_t, int64_t) { return true; })) return SeenKeys{.causal = false};
    if (!shows_where(
            [&](int64_t query, int64_t key) { return key <= query && key > query - window; }))
      return std::nullopt;
    return SeenKeys{.window = window == tokens ? 0 : window};
  }

 private:
  // Returns whether the mask shows the pairs of a query and a key for which f(query, key) is true, and no others.
  template <class F>
  bool shows_where(const F& f) const {
    const auto of = [&](int d) {
      return view_.strides[static_cast<size_t>(d)] == 0 ? 1 : space_[d];
    };
    for (int64_t sample = 0; sample < of(0); ++sample)
      for (int64_t head = 0; head < of(1); ++head)
        for (int64_t query = 0; query < space_[2]; ++query)
          for (int64_t key = 0; key < space_[3]; ++key)
            if (shows(sample, head, query, key) != f(query, key)) return false;
    return true;
  }

  // Returns whether a score is shown as it is; nothing if it is neither shown nor hidden.
  std::optional<bool> shows(int64_t sample, int64_t head, int64_t query, int64_t key) const {
    const auto& [of_samples, of_heads, of_queries, of_keys, a, b, c, d] = view_.strides;
    const double value = table_.at(view_.offset + sample * of_samples + head * of_heads +
                                   query * of_queries + key * of_keys);
    if (kind_ != MaskKind::is_added) return (value != 0) == (kind_ == MaskKind::shows);
    if (value == 0) return true;
    if (value <= double{kHidden}) return false;
    return std::nullopt;
  }

  const ConstantTable& table_;
  const View& view_;
  const Shape& space_;
  MaskKind kind_;
};

// Scores of queries and keys, which are scaled and of which a mask hides those that are not seen.
struct Scores {
  const Instruction* product = nullptr;
  float scale = 1;
  SeenKeys seen{};
};

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
  // writes what `op` writes. Returns nothing if the weights are no softmax of scores, or of scores with another mask.
  std::vector<Instruction> of(const Instruction& op) {
    const ContractAttrs* const values = product_of(&op);
    if (!values) return {};
    const Shape space{values->batch[0], values->batch[1], values->m, values->k};
    const Instruction* weights = sources_.of(op.reads[0], op.sublayer);
    DropoutAttrs dropout;
    if (weights && weights->op == OpKind::dropout_grad) {
      // What else reads the weights must see the mask that attention has.
      if (sources_.readers(op.reads[0]) != 1) return {};
      dropout = attrs_as<DropoutAttrs>(weights->attrs);
      weights = sources_.of(weights->reads[0], op.sublayer);
    }
    if (!weights || !is_dense(values->a, space)) return {};
    const BufferId exponents = softmax_operand(*weights, space);
    const Instruction* const source = sources_.of(exponents, op.sublayer);
    const Scores scores = source ? scores_of(*source, space) : Scores{};
    const ContractAttrs* const product = scores.product ? product_of(scores.product) : nullptr;
    if (!product || product->m != product->n || product->m != values->m ||
        product->n != values->k || product->batch != values->batch || product->k != values->n)
      return {};
    View v = values->b;
    std::swap(v.strides[2], v.strides[3]);
    AttentionAttrs attrs{.dropout = dropout.dropout,
                         .site = dropout.site,
                         .heads = space[1],
                         .seq_len = space[2],
                         .kv_heads = space[1],
                         .window = scores.seen.window,
                         .causal = scores.seen.causal};
    const auto width = static_cast<double>(product->k);
    if (scores.scale != static_cast<float>(1 / std::sqrt(width)))
      attrs.scale = double{scores.scale};
    return attention(op, attrs, width,
                     {Heads{scores.product->reads[0], product->a},
                      {scores.product->reads[1], product->b},
                      {op.reads[1], v}});
  }

 private:
  static const ContractAttrs* product_of(const Instruction* op) {
    const auto* const product = std::get_if<ContractAttrs>(&op->attrs);
    return product && product->batch.rank == 2 && product->summed == 0 ? product : nullptr;
  }

  // Returns what an instruction computes the softmax of over the last dimension; kNone if it does not.
  BufferId softmax_operand(const Instruction& op, const Shape& space) const {
    const Formula x = Formula::input(0), shifted = exponential(x - Formula::input(1));
    if (!walking_map(op)) return kNone;
    for (const Instruction* const most : reductions_read(sources_, op, Reduction::maximum)) {
      const BufferId scores = most->reads[0], largest = most->writes[0];
      const std::optional<Composed> form = composed(sources_, op, scores);
      if (!form || form->space != space || form->reads.size() != 3) continue;
      const std::optional<Matched> found = match(shifted / Formula::input(2), form->formula);
      if (!found) continue;
      const auto read = [&](int i) { return form->reads[static_cast<size_t>(found->operand(i))]; };
      const auto view = [&](int i) { return form->views[static_cast<size_t>(found->operand(i))]; };
      if (read(0) == scores && read(1) == largest && is_dense(view(0), space) &&
          is_by_row(view(1), space) && is_by_row(view(2), space) &&
          reduces_rows(sources_, most, Reduction::maximum, x, space, space[-1], {scores}) &&
          reduces_rows(sources_, sources_.of(read(2), op.sublayer), Reduction::sum, shifted, space,
                       space[-1], {scores, largest}))
        return scores;
    }
    return kNone;
  }

  // Returns the scores of which the softmax is taken, if `op` is their product or scales and hides them; none if it is
  // another thing.
  Scores scores_of(const Instruction& op, const Shape& space) {
    const Scores all{.seen = {.causal = false}};
    if (product_of(&op)) return with_product(all, &op);
    if (const auto* const scale = std::get_if<ScaleAttrs>(&op.attrs); scale && scale->factor > 0)
      return with_product({.scale = scale->factor, .seen = all.seen},
                          sources_.of(op.reads[0], op.sublayer));
    return masked_scores(op, space);
  }
  static Scores with_product(Scores scores, const Instruction* product) {
    scores.product = product;
    return scores;
  }

  // The same of a map that scales scores, and hides some of them.
  Scores masked_scores(const Instruction& op, const Shape& space) {
    const MapAttrs* const map = walking_map(op);
    if (!map || map->space != space) return {};
    for (const MaskPattern& pattern : patterns_) {
      const std::optional<Matched> found =
          match(pattern.formula, map->formula, {MaskOperand::kScale, MaskOperand::kBelow});
      if (!found) continue;
      const auto scores = static_cast<size_t>(found->operand(MaskOperand::kScores));
      const float by = found->constant(MaskOperand::kScale).value_or(1);
      if (!is_dense(map->views[scores], space) || !(by > 0)) continue;
      const auto seen = pattern.kind == MaskKind::none ? SeenKeys{.causal = false}
                                                       : keys_of_mask(op, pattern, *found, space);
      if (seen)
        return {.product = sources_.of(op.reads[scores], op.sublayer),
                .scale = pattern.divides ? 1 / by : by,
                .seen = *seen};
    }
    return {};
  }

  // Returns the keys that the mask of a map shows, which the pattern is found in; nothing if it shows others.
  std::optional<SeenKeys> keys_of_mask(const Instruction& op, const MaskPattern& pattern,
                                       const Matched& found, const Shape& space) {
    const auto mask = static_cast<size_t>(found.operand(MaskOperand::kMask));
    const std::optional<ConstantTable> table = ConstantTable::of(program_, op.reads[mask]);
    const bool hides = pattern.kind == MaskKind::is_added ||
                       found.constant(MaskOperand::kBelow).value_or(0) <= kHidden;
    if (!table || !hides) return std::nullopt;
    const View view = std::get<MapAttrs>(op.attrs).views[mask];
    return keys_of({op.reads[mask], view, space, pattern.kind}, *table);
  }

  // A mask as scores read it.
  struct SeenMask {
    BufferId buffer = kNone;
    View view{};
    Shape space{};
    MaskKind kind{};
    bool operator==(const SeenMask&) const = default;
  };

  // Returns the keys that a mask shows. All layers ask for the same one, which is looked at once.
  std::optional<SeenKeys> keys_of(const SeenMask& mask, const ConstantTable& table) {
    for (const auto& [known, keys] : masks_)
      if (known == mask) return keys;
    const auto keys = Mask(table, mask.view, mask.space, mask.kind).seen_keys();
    masks_.emplace_back(mask, keys);
    return keys;
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
      instructions.push_back(in_place_of(op, kind, of_op, std::move(reads), std::move(writes)));
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
  std::vector<std::pair<SeenMask, std::optional<SeenKeys>>> masks_;
};

}  // namespace

void recognise_attention(Program& program) {
  Attentions attentions(program);
  replace_each(program, [&](const Instruction& op) { return attentions.of(op); });
}

}  // namespace dstrain
