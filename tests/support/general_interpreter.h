// Computes the general ops in double precision by their definitions, for tests of their rules.
#pragma once

#include <algorithm>
#include <map>
#include <numeric>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/ir/program.h"
#include "tests/support/random_views.h"

namespace dstrain {

class GeneralInterpreter {
 public:
  explicit GeneralInterpreter(const Program& program) : program_(program) {}

  // The values of a buffer.
  std::vector<double>& operator[](BufferId id) { return values_[id]; }

  // Computes one instruction. Throws InternalError for another op.
  void run(const Instruction& op) {
    std::vector<double> result(static_cast<size_t>(program_.at(op.writes[0]).shape.elements()), 0);
    if (const auto* map = std::get_if<MapAttrs>(&op.attrs))
      reduce(op,
             {.formula = map->formula,
              .space = map->space,
              .kept = map->space.rank,
              .views = map->views},
             result);
    else if (const auto* of = std::get_if<ReduceAttrs>(&op.attrs))
      reduce(op, *of, result);
    else if (const auto* product = std::get_if<ContractAttrs>(&op.attrs))
      contract(op, *product, result);
    else if (const auto* of_table = std::get_if<TakeAttrs>(&op.attrs))
      take(op, *of_table, result);
    else if (const auto* of_lines = std::get_if<ScanAttrs>(&op.attrs))
      scan(op, *of_lines, result);
    else if (const auto* order = std::get_if<SortAttrs>(&op.attrs))
      sort(op, *order, result);
    else if (const auto* windows = std::get_if<WindowAttrs>(&op.attrs))
      window(op, *windows, result);
    else if (op.op == OpKind::add)
      for (size_t i = 0; i < result.size(); ++i)
        result[i] = values_[op.reads[0]][i] + values_[op.reads[1]][i];
    else
      throw InternalError("the interpreter has no such op");
    std::vector<double>& to = values_[op.writes[0]];
    if (op.accumulate == Accumulate::always)
      for (size_t i = 0; i < result.size(); ++i) result[i] += to[i];
    to = std::move(result);
  }

 private:
  double at(BufferId id, const View& view, const View::Numbers& index) {
    const int64_t element = element_at(view, index);
    return element < 0 ? 0 : values_[id].at(static_cast<size_t>(element));
  }

  void reduce(const Instruction& op, const ReduceAttrs& attrs, std::vector<double>& result) {
    const size_t terms = static_cast<size_t>(attrs.space.elements()) / result.size();
    size_t i = 0;
    for_indices(attrs.space, [&](const View::Numbers& index) {
      std::vector<double> inputs, inside;
      for (size_t k = 0; k < op.reads.size(); ++k) {
        inputs.push_back(at(op.reads[k], attrs.views[k], index));
        inside.push_back(element_at(attrs.views[k], index) < 0 ? 0 : 1);
      }
      const double value = attrs.formula.value(inputs, inside);
      double& to = result[i / terms];
      const bool first = i++ % terms == 0;
      to = first                              ? value
           : attrs.kind == Reduction::sum     ? to + value
           : attrs.kind == Reduction::maximum ? std::max(to, value)
                                              : std::min(to, value);
    });
  }

  void contract(const Instruction& op, const ContractAttrs& c, std::vector<double>& result) {
    Shape space = c.batch;
    space.append(c.m);
    space.append(c.n);
    const auto row = static_cast<size_t>(c.batch.rank), column = row + 1;
    size_t i = 0;
    for_indices(space, [&](const View::Numbers& index) {
      for (int64_t k = 0; k < c.k; ++k) {
        View::Numbers of_a = index, of_b = index;
        of_a[column] = of_b[column] = k;
        of_b[row] = index[column];
        result[i % result.size()] += at(op.reads[0], c.a, of_a) * at(op.reads[1], c.b, of_b);
      }
      ++i;
    });
  }

  void take(const Instruction& op, const TakeAttrs& attrs, std::vector<double>& result) {
    size_t i = 0;
    for_indices(attrs.space, [&](const View::Numbers& index) {
      int64_t element = element_at(attrs.table, index);
      for (size_t k = 0; k < attrs.indices.size(); ++k) {
        const TakeAttrs::Indices& how = attrs.indices[k];
        const auto named = static_cast<int64_t>(at(op.reads[k + 1], how.view, index));
        element += (named < 0 ? named + how.size : named) * how.stride;
      }
      const auto e = static_cast<size_t>(element);
      if (op.op == OpKind::take)
        result[i] = values_[op.reads[0]].at(e);
      else
        result.at(e) += values_[op.reads[0]][i];
      ++i;
    });
  }

  // Calls f(first element of x, first element of a result with so many elements of a line) for each line.
  template <class F>
  void for_lines(BufferId x, const Lines& lines, int64_t of_result, const F& f) {
    const int64_t count = lines.count(program_.at(x).shape.elements());
    for (int64_t line = 0; line < count; ++line) {
      const int64_t plane = line / lines.apart, column = line % lines.apart;
      f(plane * lines.size * lines.apart + column, plane * of_result * lines.apart + column);
    }
  }

  void scan(const Instruction& op, const ScanAttrs& attrs, std::vector<double>& result) {
    const auto [size, apart] = attrs.lines;
    const std::vector<double>& x = values_[op.reads[0]];
    for_lines(
        op.reads[0], attrs.lines, size, [&, size = size, apart = apart](int64_t first, int64_t) {
          double sum = 0;
          for (int64_t k = 0; k < size; ++k) {
            const auto i = static_cast<size_t>(first + apart * (attrs.reversed ? size - 1 - k : k));
            result[i] = attrs.exclusive ? sum : sum + x[i];
            sum += x[i];
          }
        });
  }

  void sort(const Instruction& op, const SortAttrs& attrs, std::vector<double>& result) {
    const auto [size, apart] = attrs.lines;
    const std::vector<double>& x = values_[op.reads[0]];
    for_lines(op.reads[0], attrs.lines, attrs.kept,
              [&, size = size, apart = apart](int64_t first, int64_t to) {
                std::vector<int64_t> order(static_cast<size_t>(size));
                std::iota(order.begin(), order.end(), int64_t{0});
                std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
                  const double of_a = x[static_cast<size_t>(first + a * apart)],
                               of_b = x[static_cast<size_t>(first + b * apart)];
                  return attrs.descending ? of_a > of_b : of_a < of_b;
                });
                for (int64_t k = 0; k < attrs.kept; ++k)
                  result[static_cast<size_t>(to + k * apart)] =
                      static_cast<double>(order[static_cast<size_t>(k)]);
              });
  }

  void window(const Instruction& op, const WindowAttrs& w, std::vector<double>& result) {
    check(w.samples == 1, "windows of one sample each");
    const WindowAttrs::Dimension &d0 = w.dimensions[0], &d1 = w.dimensions[1],
                                 &d2 = w.dimensions[2];
    const Shape space{w.planes,  d0.out,    d1.out,    d2.out,
                      d0.kernel, d1.kernel, d2.kernel, w.channels};
    const std::vector<double>& from = values_[op.reads[0]];
    size_t i = 0;
    for_indices(space, [&](const View::Numbers& n) {
      const int64_t at0 = d0.element(n[1], n[4]), at1 = d1.element(n[2], n[5]),
                    at2 = d2.element(n[3], n[6]);
      const bool inside = at0 >= 0 && at1 >= 0 && at2 >= 0;
      const auto element =
          inside
              ? static_cast<size_t>(
                    (((n[0] * d0.size + at0) * d1.size + at1) * d2.size + at2) * w.channels + n[7])
              : 0;
      if (op.op == OpKind::window)
        result[i] = inside ? from[element] : static_cast<double>(w.outside);
      else if (inside)
        result[element] += from[i];
      ++i;
    });
  }

  const Program& program_;
  std::map<BufferId, std::vector<double>> values_;
};

}  // namespace dstrain
