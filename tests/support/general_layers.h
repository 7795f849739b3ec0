// What models of general ops alone are made of, for tests. Rows are tokens of samples: (samples, tokens, columns).
#pragma once

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "runtime/ir/builder/builder.h"

namespace dstrain {

class GeneralLayers {
 public:
  using Seen = Builder::Seen;
  static inline const Formula kX = Formula::input(0), kY = Formula::input(1),
                              kZ = Formula::input(2), kW = Formula::input(3);

  GeneralLayers(Builder& builder, int64_t tokens)
      : b(builder), samples_(builder.options().batch), tokens_(tokens) {}

  int64_t samples() const { return samples_; }
  int64_t tokens() const { return tokens_; }
  Shape shape(BufferId id) const { return b.program().at(id).shape; }
  Shape rows(int64_t columns) const { return {samples_, tokens_, columns}; }
  Seen whole(BufferId id) const { return {id, dense_view(shape(id))}; }
  static Seen seen(BufferId id, View::Numbers strides, int64_t offset = 0) {
    return {id, {.offset = offset, .strides = strides}};
  }
  // One value for each row, and one for each column, of rows(columns).
  Seen by_row(BufferId id) const { return seen(id, {tokens_, 1, 0}); }
  static Seen by_column(BufferId id) { return seen(id, {0, 0, 1}); }
  // Heads (samples, heads, tokens, size) that are columns of rows of `row` columns, from `first` on.
  Seen heads(BufferId id, int64_t row, int64_t size, int64_t first = 0) const {
    return seen(id, {tokens_ * row, size, row, 1}, first);
  }

  // The elements of a row of a table for each token: `ids` rows of so many columns.
  TakeAttrs by_id(int64_t columns, int64_t ids) const {
    return {.space = rows(columns),
            .table = {.strides = {0, 0, 1}},
            .indices = {{{.strides = {tokens_, 1, 0}}, columns, ids}}};
  }

  // Returns x times a weight (out, in).
  BufferId product(BufferId x, BufferId weight) {
    const int64_t out = shape(weight)[0], in = shape(weight)[1];
    return b.contract(seen(x, {tokens_ * in, in, 1}), seen(weight, {0, in, 1}), {samples_}, tokens_,
                      out, in);
  }
  BufferId with_bias(BufferId x, BufferId bias) {
    const Shape space = rows(shape(bias)[0]);
    return b.map(kX + kY, space, {{x, dense_view(space)}, by_column(bias)});
  }
  BufferId sum(BufferId x, BufferId y, int64_t columns) {
    const View dense = dense_view(rows(columns));
    return b.map(kX + kY, rows(columns), {{x, dense}, {y, dense}});
  }

  // Returns `scaled` of (x - mean) / sqrt(mean square + eps), by rows.
  BufferId centred_norm(BufferId x, int64_t columns, float eps, const std::vector<Seen>& more = {},
                        const std::function<Formula(const Formula&)>& scaled = nullptr) {
    const float part = 1 / static_cast<float>(columns);
    const Shape space = rows(columns);
    const Seen dense{x, dense_view(space)};
    const BufferId mean = b.reduce(Reduction::sum, kX * part, space, 2, {dense}, DType::f32);
    const BufferId square = b.reduce(Reduction::sum, (kX - kY) * (kX - kY) * part, space, 2,
                                     {dense, by_row(mean)}, DType::f32);
    std::vector<Seen> operands{dense, by_row(mean), by_row(square)};
    operands.insert(operands.end(), more.begin(), more.end());
    const Formula norm = (kX - kY) / square_root(kZ + eps);
    return b.map(scaled ? scaled(norm) : norm, space, operands);
  }
  BufferId layer_norm(BufferId x, BufferId weight, BufferId bias, float eps) {
    return centred_norm(x, shape(weight)[0], eps, {by_column(weight), by_column(bias)},
                        [](const Formula& norm) { return norm * kW + Formula::input(4); });
  }
  BufferId rms_norm(BufferId x, BufferId weight, float eps) {
    const int64_t columns = shape(weight)[0];
    const Shape space = rows(columns);
    const Seen dense{x, dense_view(space)};
    const BufferId squares = b.reduce(Reduction::sum, kX * kX, space, 2, {dense}, DType::f32);
    return b.map(kY * (kX / square_root(kZ / static_cast<float>(columns) + eps)), space,
                 {dense, by_column(weight), by_row(squares)});
  }

  // Returns the softmax of scores (samples, heads, tokens, tokens) over the last dimension.
  BufferId softmax(BufferId scores) {
    const Shape space = shape(scores);
    const View by_score_row{.strides = {space[1] * tokens_, tokens_, 1, 0}};
    const BufferId largest =
        b.detached_reduce(Reduction::maximum, kX, space, 3, {whole(scores)}, b.program().dtype);
    const BufferId powers =
        b.map(exponential(kX - kY), space, {whole(scores), {largest, by_score_row}});
    const BufferId sum = b.reduce(Reduction::sum, kX, space, 3, {whole(powers)}, DType::f32);
    return b.map(kX / kY, space, {whole(powers), {sum, by_score_row}});
  }

  // Returns rows (samples * tokens, heads * size) of causal attention over heads of `size` columns.
  BufferId causal_attention(const Seen& q, const Seen& k, Seen v, int64_t heads, int64_t size) {
    const Shape space{samples_, heads, tokens_, tokens_};
    const BufferId scores = b.contract(q, k, {samples_, heads}, tokens_, tokens_, size);
    std::vector<float> hidden;
    for (int64_t query = 0; query < tokens_; ++query)
      for (int64_t key = 0; key < tokens_; ++key) hidden.push_back(key > query ? 1 : 0);
    const BufferId mask = b.constant("mask", {tokens_, tokens_}, DType::f32, hidden.data());
    const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(size)));
    const BufferId masked = b.map(select(kY, -std::numeric_limits<float>::infinity(), kX * scale),
                                  space, {whole(scores), seen(mask, {0, 0, tokens_, 1})});
    std::swap(v.view.strides[2], v.view.strides[3]);
    const BufferId y =
        b.contract(whole(softmax(masked)), v, {samples_, heads}, tokens_, size, tokens_);
    const Seen by_token = seen(y, {heads * tokens_ * size, size, tokens_ * size, 1});
    return b.matrix(b.map(kX, {samples_, tokens_, heads, size}, {by_token}), heads * size);
  }

  // Adds the cross-entropy of the first `classes` logits of each row. Targets below 0 do not count.
  void cross_entropy(BufferId logits, BufferId targets, int64_t classes) {
    const int64_t width = shape(logits)[-1];
    const Shape space = rows(classes), each{samples_, tokens_};
    const Seen of_rows = seen(logits, {tokens_ * width, width, 1});
    const BufferId largest =
        b.detached_reduce(Reduction::maximum, kX, space, 2, {of_rows}, b.program().dtype);
    const BufferId powers = b.reduce(Reduction::sum, exponential(kX - kY), space, 2,
                                     {of_rows, by_row(largest)}, DType::f32);
    const BufferId right = b.take(logits,
                                  {.space = each,
                                   .table = {.strides = {tokens_ * width, width}},
                                   .indices = {{dense_view(each), 1, classes}}},
                                  {targets});
    b.loss(b.map(select(less(kW, 0), 0, logarithm(kX) + kY - kZ), each,
                 {whole(powers), whole(largest), whole(right), whole(targets)}, DType::f32),
           LossWeight::targets);
  }

  Builder& b;

 private:
  int64_t samples_, tokens_;
};

}  // namespace dstrain
