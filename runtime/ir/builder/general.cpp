// The general ops of a model.
#include <algorithm>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/ir/builder/builder.h"
#include "runtime/ir/rule.h"
#include "runtime/ir/views/take_sorted.h"

namespace dstrain {
namespace {

std::vector<BufferId> buffers_of(const std::vector<Builder::Seen>& operands) {
  std::vector<BufferId> buffers;
  for (const Builder::Seen& seen : operands) buffers.push_back(seen.buffer);
  return buffers;
}

std::vector<View> views_of(const std::vector<Builder::Seen>& operands) {
  std::vector<View> views;
  for (const Builder::Seen& seen : operands) views.push_back(seen.view);
  return views;
}

// Makes dimensions of the batch in which b is the same rows of one product, from the last one on.
void join_rows(ContractAttrs& c) {
  while (c.batch.rank > 0) {
    const auto last = static_cast<size_t>(c.batch.rank - 1), row = last + 1, column = last + 2;
    const bool same_b = c.b.strides[last] == 0 || c.batch[-1] == 1;
    const bool even_a = c.batch[-1] == 1 || c.a.strides[last] == c.m * c.a.strides[row];
    if (!same_b || !even_a) return;
    c.m *= c.batch[-1];
    for (View* view : {&c.a, &c.b}) {
      view->strides[last] = view->strides[row];
      view->strides[row] = view->strides[column];
      view->strides[column] = 0;
    }
    --c.batch.rank;
  }
}

}  // namespace

BufferId Builder::map(const Formula& formula, const Shape& space, const std::vector<Seen>& operands,
                      std::optional<DType> result) {
  return emit(OpKind::map, MapAttrs{formula, space, views_of(operands)}, buffers_of(operands),
              {.name = fresh("map"), .shape = space, .dtype = result.value_or(options_.dtype)});
}

BufferId Builder::reduce(Reduction kind, const Formula& formula, const Shape& space, int kept,
                         const std::vector<Seen>& operands, std::optional<DType> result) {
  Shape shape;
  for (int d = 0; d < kept; ++d) shape.append(space[d]);
  if (kept == 0) shape.append(1);
  return emit(OpKind::reduce, ReduceAttrs{kind, formula, space, kept, views_of(operands)},
              buffers_of(operands),
              {.name = fresh("reduced"), .shape = shape, .dtype = result.value_or(options_.dtype)});
}

BufferId Builder::detached(BufferId x) {
  const Shape shape = program_.at(x).shape;
  return emit(OpKind::map,
              MapAttrs{.formula = Formula::input(0),
                       .space = shape,
                       .views = {dense_view(shape)},
                       .detached = true},
              {x}, activation_buffer("detached", shape, x));
}

BufferId Builder::detached_reduce(Reduction kind, const Formula& formula, const Shape& space,
                                  int kept, const std::vector<Seen>& operands, DType result) {
  const BufferId id = reduce(kind, formula, space, kept, operands, result);
  std::get<ReduceAttrs>(program_.instructions.back().attrs).detached = true;
  return id;
}

BufferId Builder::contract(const Seen& a, const Seen& b, const Shape& batch, int64_t m, int64_t n,
                           int64_t k) {
  Shape shape = batch;
  shape.append(m);
  shape.append(n);
  ContractAttrs attrs{.batch = batch, .m = m, .n = n, .k = k, .a = a.view, .b = b.view};
  join_rows(attrs);
  return emit(OpKind::contract, attrs, {a.buffer, b.buffer},
              activation_buffer("product", shape, a.buffer));
}

BufferId Builder::matrix(BufferId x, int64_t columns) {
  Buffer& buffer = program_.at(x);
  if (buffer.shape[-1] == columns) return x;
  const Shape shape{buffer.shape.elements() / columns, columns};
  const bool made = std::ranges::any_of(program_.instructions,
                                        [x](const Instruction& op) { return op.writes[0] == x; });
  if (!made || !is_without_rows(program_, x))
    return map(Formula::input(0), shape, {{x, dense_view(shape)}});
  buffer.shape = shape;
  return x;
}

BufferId Builder::take(BufferId table, const TakeAttrs& attrs,
                       const std::vector<BufferId>& indices) {
  std::vector<BufferId> reads{table};
  reads.insert(reads.end(), indices.begin(), indices.end());
  return emit(OpKind::take, attrs, std::move(reads),
              activation_buffer("taken", attrs.space, table));
}

BufferId Builder::put(BufferId values, const TakeAttrs& attrs, const std::vector<BufferId>& indices,
                      const Shape& table) {
  std::vector<BufferId> reads{values};
  reads.insert(reads.end(), indices.begin(), indices.end());
  return emit(OpKind::put, attrs, std::move(reads), activation_buffer("put", table, values));
}

BufferId Builder::scan(BufferId x, const ScanAttrs& attrs, std::optional<DType> result) {
  Buffer sums = activation_buffer("scanned", program_.at(x).shape, x);
  sums.dtype = result.value_or(sums.dtype);
  return emit(OpKind::scan, attrs, {x}, std::move(sums));
}

BufferId Builder::sort(BufferId x, const SortAttrs& attrs) {
  const Shape shape = take_sorted(attrs, program_.at(x).shape.elements()).space;
  return emit(OpKind::sort, attrs, {x},
              {.name = fresh("order"), .shape = shape, .dtype = DType::i32});
}

BufferId Builder::sorted(BufferId x, BufferId indices, const SortAttrs& attrs) {
  return take(x, take_sorted(attrs, program_.at(x).shape.elements()), {indices});
}

BufferId Builder::uniform(const Shape& shape, int dimension) {
  UniformAttrs attrs{.site = next_site_++, .samples = 1, .inner = shape.elements()};
  if (dimension != kNoSamples) {
    check(shape[dimension] % options_.batch == 0, "dimension {} of {} does not count {} samples",
          dimension, to_string(shape), options_.batch);
    attrs.samples = options_.batch;
    attrs.inner = shape[dimension] / options_.batch;
    for (int d = dimension + 1; d < shape.rank; ++d) attrs.inner *= shape[d];
  }
  return emit(OpKind::uniform, attrs, {},
              {.name = fresh("drawn"), .shape = shape, .dtype = DType::f32});
}

BufferId Builder::window(BufferId x, const WindowAttrs& attrs) {
  return emit(
      OpKind::window, attrs, {x},
      activation_buffer(
          "windows",
          {attrs.planes, attrs.windows() * attrs.samples, attrs.kernel() * attrs.channels}, x));
}

BufferId Builder::window_sums(BufferId windows, const WindowAttrs& attrs) {
  return emit(OpKind::window_grad, attrs, {windows},
              activation_buffer("window_sums",
                                {attrs.planes, attrs.positions() * attrs.samples, attrs.channels},
                                windows));
}

BufferId Builder::max_pool(BufferId x, const WindowAttrs& attrs) {
  return emit(OpKind::max_pool, attrs, {x},
              activation_buffer(
                  "pooled", {attrs.planes * attrs.windows() * attrs.samples, attrs.channels}, x));
}

BufferId Builder::convolution(BufferId x, BufferId weight, const ConvolutionAttrs& attrs) {
  const WindowAttrs& w = attrs.windows;
  return emit(OpKind::convolution, attrs, {x, weight},
              activation_buffer("convolution", {w.windows() * w.samples, attrs.outputs}, x));
}

}  // namespace dstrain
