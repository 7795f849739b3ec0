#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/ir/formula/match.h"
#include "runtime/plan/recognise/recognise.h"
#include "runtime/plan/recognise/sources.h"

namespace dstrain {
namespace {

// Makes linear of the product of rows and a whole weight, whose rows are those of the weight.
void make_linear(Program& program, Instruction& op) {
  const auto* const product = std::get_if<ContractAttrs>(&op.attrs);
  if (!product || product->batch.rank != 0) return;
  const BufferId x = op.reads[0], weight = op.reads[1], y = op.writes[0];
  const Buffer& of_weight = program.at(weight);
  if (of_weight.parameter < 0 || of_weight.shape != Shape{product->n, product->k} ||
      !is_dense(product->b, of_weight.shape) || !is_dense(product->a, {product->m, product->k}) ||
      program.at(x).dtype != of_weight.dtype || program.at(y).dtype != of_weight.dtype ||
      program.at(x).shape.elements() != product->m * product->k ||
      !make_rows(program, x, product->k) || !make_rows(program, y, product->n))
    return;
  op.op = OpKind::linear;
  op.attrs = ActivationAttrs{Activation::none};
  op.reads = {x, weight, kNone};
}

// Returns the product that alone makes a buffer, if one operand alone is the buffer and the product has no activation.
const Instruction* product_for(const Sources& sources, const Instruction& op, BufferId id) {
  const Instruction* const product = sources.of(id, op.sublayer);
  return product && product->op == OpKind::linear && sources.readers(id) == 1 &&
                 attrs_as<ActivationAttrs>(product->attrs).activation == Activation::none
             ? product
             : nullptr;
}

// Instructions in the place of a product and of one that reads it.
struct Joined {
  std::vector<Instruction> instructions{};
  BufferId product = kNone;
};

template <class F>
void join_products(Program& program, const F& join) {
  const Sources sources(program);
  std::vector<BufferId> joined;
  replace_each(program, [&](const Instruction& op) {
    Joined found = join(sources, op);
    if (!found.instructions.empty()) joined.push_back(found.product);
    return std::move(found.instructions);
  });
  for (const BufferId id : joined)
    program.instructions.erase(std::ranges::find_if(
        program.instructions, [id](const Instruction& op) { return op.writes[0] == id; }));
}

// What a map does with a product: it adds a bias, and then may apply an activation or add rows. Which summand is which does not
// follow from the formula.
struct BiasForm {
  Formula pattern{};
  Activation activation = Activation::none;
  int summands = 2;
};

std::vector<BiasForm> bias_forms() {
  const Formula sum = Formula::input(0) + Formula::input(1);
  return {{sum},
          {relu(sum), Activation::relu},
          {gelu(sum), Activation::gelu},
          {Formula::input(2) + sum, Activation::none, 3}};
}

// The summands of a map.
struct Summands {
  BufferId bias = kNone, rows = kNone;
};

// Returns what else a map adds up than its operand `product`, which has n columns; nothing if it is no bias, or not rows alike.
std::optional<Summands> summands_of(const Program& program, const Instruction& op,
                                    const MapAttrs& map, size_t product, int64_t n) {
  const Buffer& sum = program.at(op.writes[0]);
  Summands result;
  for (size_t i = 0; i < op.reads.size(); ++i) {
    const Buffer& buffer = program.at(op.reads[i]);
    if (buffer.dtype != sum.dtype) return std::nullopt;
    const bool dense =
        is_dense(map.views[i], map.space) && buffer.shape.elements() == sum.shape.elements();
    if (i == product) {
      if (!dense) return std::nullopt;
    } else if (buffer.parameter >= 0 && buffer.shape.elements() == n && map.space[-1] == n &&
               result.bias == kNone && is_by_column(map.views[i], map.space)) {
      result.bias = op.reads[i];
    } else if (dense && buffer.shape[-1] == n && result.rows == kNone) {
      result.rows = op.reads[i];
    } else {
      return std::nullopt;
    }
  }
  return result.bias == kNone ? std::nullopt : std::optional(result);
}

Joined with_bias(Program& program, const Sources& sources, const Instruction& op,
                 const std::vector<BiasForm>& forms) {
  const MapAttrs* const map = walking_map(op);
  if (!map) return {};
  const auto form = std::ranges::find_if(forms, [&](const BiasForm& f) {
    return static_cast<size_t>(f.summands) == op.reads.size() && match(f.pattern, map->formula);
  });
  if (form == forms.end()) return {};
  for (size_t i = 0; i < op.reads.size(); ++i) {
    const BufferId sum = op.reads[i], y = op.writes[0];
    const Instruction* const product = product_for(sources, op, sum);
    if (!product || product->reads[2] != kNone) continue;
    const int64_t n = program.at(sum).shape[-1];
    const std::optional<Summands> summands = summands_of(program, op, *map, i, n);
    if (!summands || !make_rows(program, y, n)) continue;
    Joined joined{{in_place_of(op, OpKind::linear, product->attrs,
                               {product->reads[0], product->reads[1], summands->bias}, {sum})},
                  sum};
    Instruction& linear = joined.instructions[0];
    if (summands->rows != kNone)
      joined.instructions.push_back(in_place_of(op, OpKind::add_dropout, DropoutAttrs{.seq_len = 1},
                                                {summands->rows, sum}, {y}));
    else if (form->activation == Activation::gelu)
      joined.instructions.push_back(
          in_place_of(op, OpKind::activation, ActivationAttrs{form->activation}, {sum}, {y}));
    else {
      linear.attrs = ActivationAttrs{form->activation};
      linear.writes = {y};
    }
    return joined;
  }
  return {};
}

Joined with_relu(Program& program, const Sources& sources, const Instruction& op) {
  if (op.op != OpKind::activation || op.attrs != OpAttrs(ActivationAttrs{Activation::relu}))
    return {};
  const BufferId x = op.reads[0], y = op.writes[0];
  const Instruction* const product = product_for(sources, op, x);
  if (!product || !make_rows(program, y, program.at(x).shape[-1])) return {};
  return {{in_place_of(op, OpKind::linear, op.attrs, product->reads, {y})}, x};
}

}  // namespace

void recognise_products(Program& program) {
  for (Instruction& op : program.instructions) make_linear(program, op);
  join_products(program, [&, forms = bias_forms()](const Sources& sources, const Instruction& op) {
    return with_bias(program, sources, op, forms);
  });
  join_products(program, [&](const Sources& sources, const Instruction& op) {
    return with_relu(program, sources, op);
  });
}

}  // namespace dstrain
