// Operators that read or write what integers name.
#include "models/exported/lower/ops/lookups.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "models/exported/fold/elements.h"
#include "models/exported/lower/formulas.h"
#include "models/exported/lower/operators.h"

namespace dstrain::exported {
namespace {

using Formulas = std::span<const Formula>;

// Returns a table that is read where it is, with the strides of its dimensions.
Builder::Seen table_of(Lowering& l, const Value& table, const std::vector<Named>& names) {
  Builder::Seen seen = l.seen(table);
  for (const Named& named : names)
    if (seen.view.strides[static_cast<size_t>(named.dimension)] <= 0)
      return {l.dense(table), dense_view(table.shape)};
  return seen;
}

// Returns the attributes of an operation that walks through a table; `indices` gets the buffers that name its elements.
TakeAttrs walk_of(Lowering& l, const View& view, const Shape& table, const Shape& space,
                  const std::vector<Named>& names, const std::vector<int>& places,
                  std::vector<BufferId>& indices) {
  TakeAttrs attrs{.space = space_of(space), .table = {.offset = view.offset}, .indices = {}};
  for (int d = 0; d < table.rank; ++d)
    if (const int place = places[static_cast<size_t>(d)]; place >= 0)
      attrs.table.strides[static_cast<size_t>(place)] = view.strides[static_cast<size_t>(d)];
  for (const Named& named : names) {
    const Builder::Seen index = l.integers(named.index).operands[0];
    indices.push_back(index.buffer);
    attrs.indices.push_back(
        {index.view, view.strides[static_cast<size_t>(named.dimension)], table[named.dimension]});
  }
  return attrs;
}

// Returns the first of integers that follow one another: positions. Nothing if they do not.
std::optional<int64_t> first_of_run(const HostTensor& ids) {
  const auto read = loader_of<double>(ids.type);
  std::optional<int64_t> first;
  int64_t count = 0;
  for (Walk walk(ids.sizes, {&ids}); !walk.is_done(); walk.next(), ++count) {
    const auto id = static_cast<int64_t>(read(walk.at(0)));
    if (!first) first = id;
    if (id != *first + count) return std::nullopt;
  }
  return first;
}

void lower_embedding(Lowering& l, const Node& node) {
  const Value table = l.operand(node, "weight"), ids = l.operand(node, "indices");
  if (node.flag("scale_grad_by_freq"))
    Lowering::fail(node, "scales gradients by how often a row is used, which is not supported");
  const int64_t padding = node.whole("padding_idx");
  if (const HostTensor* const named = l.constant(node, "indices"); named && padding < 0) {
    const std::optional<int64_t> first = first_of_run(*named);
    if (first && *first >= 0 && *first + ids.shape.elements() <= table.shape[0]) {
      const Value rows = slice(table, 0, *first, ids.shape.elements());
      return l.set(node, l.reshaped(rows, l.shape_of(node.outputs[0])));
    }
  }
  const std::optional<BufferId> parameter = l.parameter(table);
  const bool by_sample = ids.shape.rank >= 1 && ids.shape[0] == l.batch();
  if (parameter && padding < 0 && by_sample && !l.constant(node, "indices")) {
    Shape shape = ids.shape;
    shape.append(table.shape[1]);
    const int64_t rows = ids.shape.elements() / l.batch();
    return l.set(
        node, whole(l.builder().embed(l.dense(ids), *parameter, kNone, rows), shape, table.type));
  }
  const Value rows = rows_named(l, table, ids);
  if (padding < 0) return l.set(node, rows);
  // The row of the padding gets no gradient.
  Builder& b = l.builder();
  const Value held = whole(b.detached(l.dense(rows)), rows.shape, rows.type);
  l.set(node, l.pointwise(
                  node,
                  [padding](Formulas f) {
                    return select(equal(f[0], static_cast<float>(padding)), f[1], f[2]);
                  },
                  {unsqueeze(ids, ids.shape.rank), held, rows}, rows.type));
}

void lower_index(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const Indexed indexed = indexed_space(l, node, x.shape);
  l.set(node,
        indexed.names.empty() ? x : taken(l, x, indexed.space, indexed.names, indexed.places));
}

// result[i][j] = x[index[i][j]][j], for dimension 0.
void lower_gather(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self"), index = l.operand(node, "index");
  const int d = l.dimension(node, "dim", x.shape.rank);
  l.set(node, taken(l, x, index.shape, {{index, d}}, places_but(x.shape.rank, d)));
}

void lower_index_select(Lowering& l, const Node& node) {
  const Value x = l.operand(node, "self");
  const int d = l.dimension(node, "dim", x.shape.rank);
  const Shape space = l.shape_of(node.outputs[0]);
  Value index = l.reshaped(l.operand(node, "index"), {space[d]});
  for (int i = d + 1; i < space.rank; ++i) index = unsqueeze(index, index.shape.rank);
  l.set(node,
        taken(l, x, space, {{expand(std::move(index), space), d}}, places_but(x.shape.rank, d)));
}

constexpr LoweredOp kLookups[] = {
    {"aten.embedding.default", lower_embedding},
    {"aten.gather.default", lower_gather},
    {"aten.index.Tensor", lower_index},
    {"aten.index_select.default", lower_index_select},
};

}  // namespace

std::vector<int> places_but(int rank, int named) {
  std::vector<int> places(static_cast<size_t>(rank));
  std::iota(places.begin(), places.end(), 0);
  places[static_cast<size_t>(named)] = -1;
  return places;
}

Indexed indexed_space(Lowering& l, const Node& node, const Shape& shape) {
  const std::vector<TensorRef>& list = node.tensors("indices");
  std::vector<int> named;
  Shape common;
  for (size_t d = 0; d < list.size(); ++d) {
    if (!list[d]) continue;
    const Value index = l.value(list[d]);
    if (index.type == ScalarType::boolean || is_floating(index.type))
      Lowering::fail(node, "has an index of {}: expected integers", name_of(index.type));
    const std::optional<Shape> together = broadcast(common, index.shape);
    if (!together) Lowering::fail(node, "has indices without a common shape");
    common = *together;
    named.push_back(static_cast<int>(d));
  }
  Indexed result{.space = shape, .names = {}, .places = {}};
  if (named.empty()) return result;
  result.space = {};
  result.places.assign(static_cast<size_t>(shape.rank), -1);
  // Where others are between them, the dimensions of indices come first.
  const bool apart = named.back() - named.front() + 1 != static_cast<int>(named.size());
  const int first = apart ? 0 : named.front();
  Shape& space = result.space;
  for (int d = 0; d <= shape.rank; ++d) {
    if (space.rank == first)
      for (int i = 0; i < common.rank; ++i) space.append(common[i]);
    if (d == shape.rank || std::ranges::find(named, d) != named.end()) continue;
    result.places[static_cast<size_t>(d)] = space.rank;
    space.append(shape[d]);
  }
  for (const int d : named) {
    Value index = l.value(list[static_cast<size_t>(d)]);
    const int behind = space.rank - first - common.rank;
    index = expand(std::move(index), common);
    for (int i = 0; i < behind; ++i) index = unsqueeze(index, index.shape.rank);
    result.names.push_back({expand(std::move(index), space), d});
  }
  return result;
}

Value taken(Lowering& l, const Value& table, const Shape& space, const std::vector<Named>& names,
            const std::vector<int>& places) {
  const Builder::Seen seen = table_of(l, table, names);
  std::vector<BufferId> indices;
  const TakeAttrs attrs = walk_of(l, seen.view, table.shape, space, names, places, indices);
  return whole(l.builder().take(seen.buffer, attrs, indices), space, table.type);
}

Value put(Lowering& l, const Value& values, const Shape& table, const std::vector<Named>& names,
          const std::vector<int>& places) {
  std::vector<BufferId> indices;
  const TakeAttrs attrs =
      walk_of(l, dense_view(table), table, values.shape, names, places, indices);
  Value fractions = values;
  if (is_integer(values.type)) {
    fractions.type = ScalarType::f32;
    if (fractions.is_plain())
      fractions = whole(l.builder().map(fractions.formula, space_of(values.shape),
                                        fractions.operands, DType::f32),
                        values.shape, ScalarType::f32);
  }
  const BufferId id = l.builder().put(l.dense(fractions), attrs, indices, space_of(table));
  return whole(id, table, fractions.type);
}

Value rows_named(Lowering& l, const Value& table, const Value& ids) {
  Shape space = ids.shape;
  space.append(table.shape[1]);
  const Value index = expand(unsqueeze(ids, ids.shape.rank), space);
  return taken(l, table, space, {{index, 0}}, {-1, space.rank - 1});
}

Value along(Lowering& l, const Node& node, std::string_view name, const Value& x, int dimension,
            const std::vector<int32_t>& places) {
  Shape space = x.shape;
  const auto count = static_cast<int64_t>(places.size());
  space.dims[static_cast<size_t>(dimension)] = count;
  Value index = l.list(node, name, {count}, places);
  for (int i = dimension + 1; i < space.rank; ++i) index = unsqueeze(index, index.shape.rank);
  return taken(l, x, space, {{expand(std::move(index), space), dimension}},
               places_but(x.shape.rank, dimension));
}

std::span<const LoweredOp> lookup_operators() {
  return kLookups;
}

}  // namespace dstrain::exported
