#include "runtime/storage/weight_layout.h"

#include <algorithm>
#include <utility>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

int64_t rows_of(const Shape& shape) {
  return shape.rank > 0 ? shape[0] : 1;
}

}  // namespace

StateRegister mapped(StateRegister weights, const WeightMap& map) {
  std::unordered_map<std::string_view, StateEntry*> by_name;
  for (StateEntry& weight : weights) by_name[weight.name] = &weight;
  for (const WeightEntry& entry : map) {
    const auto weight = by_name.find(entry.parameter);
    check(weight != by_name.end(), "the weight map has {}, which is no weight of the model",
          entry.parameter);
    check(!entry.parts.empty(), "the weight map has no parts for {}", entry.parameter);
    weight->second->parts = entry.parts;
  }
  return weights;
}

WeightLayout::WeightLayout(const StateRegister& weights) {
  for (const StateEntry& weight : weights) add(weight);
  join(weights);
}

void WeightLayout::add(const StateEntry& weight) {
  shapes_.push_back(weight.global_shape);
  const int64_t rows = rows_of(weight.global_shape);
  std::vector<WeightPart> named = weight.parts;
  if (named.empty()) named.push_back({.tensor = weight.name});
  std::vector<Part>& parts = parts_.emplace_back();
  int64_t done = 0;  // rows
  for (const WeightPart& part : named) {
    Part p{.rows = part.rows > 0 ? part.rows : rows - done,
           .row_elements = weight.global_shape.elements() / rows,
           .first = part.first,
           .transposed = part.transposed};
    check(p.rows > 0 && done + p.rows <= rows && (!p.transposed || weight.global_shape.rank == 2),
          "{} {} in weight files: {} of its rows cannot be those of {}", weight.name,
          to_string(weight.global_shape), p.rows, part.tensor);
    p.begin = done * p.row_elements;
    done += p.rows;
    const auto [known, fresh] = by_name_.try_emplace(part.tensor, tensors_.size());
    if (fresh) tensors_.push_back({part.tensor, {}});
    p.tensor = known->second;
    parts.push_back(p);
  }
  check(done == rows, "{} {} in weight files has {} rows", weight.name,
        to_string(weight.global_shape), done);
}

void WeightLayout::join(const StateRegister& weights) {
  struct Use {
    const Part* part;
    Shape shape;  // of the weight
  };
  std::vector<std::vector<Use>> uses(tensors_.size());
  for (size_t w = 0; w < weights.size(); ++w)
    for (const Part& part : parts_[w])
      uses[part.tensor].push_back({&part, weights[w].global_shape});
  for (size_t t = 0; t < tensors_.size(); ++t) {
    std::ranges::sort(uses[t], {}, [](const Use& use) { return use.part->first; });
    FileTensor& tensor = tensors_[t];
    const Use& one = uses[t].front();
    int64_t rows = 0;
    for (const Use& use : uses[t]) {
      check(use.part->first == rows && use.part->transposed == one.part->transposed &&
                use.shape.rank == one.shape.rank &&
                use.part->row_elements == one.part->row_elements,
            "the parts of {} in weight files do not cover it", tensor.name);
      rows += use.part->rows;
    }
    tensor.shape = one.shape;
    if (one.shape.rank > 0) tensor.shape.dims[0] = rows;
    if (one.part->transposed) std::swap(tensor.shape.dims[0], tensor.shape.dims[1]);
  }
}

bool WeightLayout::is_transposed(size_t weight) const {
  return std::ranges::any_of(parts_[weight], &Part::transposed);
}

std::vector<FileRun> WeightLayout::runs(size_t weight, int64_t begin, int64_t count,
                                        const TensorPart& of) const {
  std::vector<FileRun> list;
  const Shape& shape = shapes_[weight];
  for (const Part& part : parts_[weight]) {
    if (part.transposed && of.by == TensorPart::By::columns) {
      // Its columns are whole runs in the file, whatever the number of rows.
      Columns columns{.count = 0, .stride = held_shape(of, shape)[-1]};
      for_runs(of, shape, 0, columns.stride, [&](const PartRun& run) {
        columns.first = run.whole;
        columns.count = run.count;
      });
      add_columns(part, columns, begin, count, list);
      continue;
    }
    int64_t first = begin, end = begin + count;
    if (of.by == TensorPart::By::columns) {  // only the rows of the part in the file
      const int64_t row = held_shape(of, shape).elements() / shape[0],
                    part_begin = part.begin / part.row_elements * row;
      first = std::max(first, part_begin);
      end = std::min(end, part_begin + part.rows * row);
    }
    for_runs(of, shape, first, end - first, [&](const PartRun& run) {
      const size_t before = list.size();
      if (part.transposed)
        add_columns(part, {.first = 0, .count = part.row_elements, .stride = part.row_elements},
                    run.whole, run.count, list);
      else
        add_runs(part, run.whole, run.count, list);
      for (size_t i = before; i < list.size(); ++i) list[i].begin += run.held - run.whole;
    });
  }
  return list;
}

void WeightLayout::add_runs(const Part& part, int64_t begin, int64_t count,
                            std::vector<FileRun>& list) {
  const int64_t from = std::max(begin - part.begin, int64_t{0});
  const int64_t to = std::min(begin + count - part.begin, part.rows * part.row_elements);
  if (from >= to) return;
  list.push_back({.tensor = part.tensor,
                  .at = part.first * part.row_elements + from,
                  .count = to - from,
                  .begin = part.begin + from});
}

void WeightLayout::add_columns(const Part& part, const Columns& columns, int64_t begin,
                               int64_t count, std::vector<FileRun>& list) const {
  const int64_t stride = columns.stride, part_begin = part.begin / part.row_elements * stride;
  const int64_t from = std::max(begin - part_begin, int64_t{0});
  const int64_t to = std::min(begin + count - part_begin, part.rows * stride);
  if (from >= to) return;
  const int64_t all_rows = tensors_[part.tensor].shape[1];
  for (int64_t c = 0; c < columns.count; ++c) {
    // The rows whose element of column c is within [from, to).
    const int64_t first = (from - c + stride - 1) / stride;
    const int64_t end = (to - c + stride - 1) / stride;
    if (first >= end) continue;
    list.push_back({.tensor = part.tensor,
                    .at = (columns.first + c) * all_rows + part.first + first,
                    .count = end - first,
                    .begin = part_begin + first * stride + c,
                    .stride = stride});
  }
}

}  // namespace dstrain
