// The gradients of the general ops by their rules, computed in double precision, against finite differences.
#include <cmath>

#include "runtime/ir/views/adjoint.h"
#include "runtime/ir/views/take_sorted.h"
#include "tests/ir/one_op.h"
#include "tests/support/general_interpreter.h"

namespace dstrain {
namespace {

const Formula kX = Formula::input(0), kY = Formula::input(1);

std::vector<double> random_values(Draw& draw, int64_t count) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<double>(draw(-1000, 1000)) / 512);
  return values;
}

// One instruction over operands that need gradients: parameters, or what a map makes of parameters.
class GradientCase {
 public:
  GradientCase(Draw& draw, Instruction op, const std::vector<int64_t>& elements,
               const Shape& result)
      : op_(std::move(op)) {
    for (const int64_t count : elements) {
      const BufferId parameter = t_.parameter({count});
      inputs_.push_back(parameter);
      values_.push_back(random_values(draw, count));
      if (draw.once_in(2)) {
        op_.reads.push_back(parameter);
        continue;
      }
      const Shape space{count};
      op_.reads.push_back(t_.run(space));
      forward_.push_back({.op = OpKind::map,
                          .attrs = MapAttrs{1.5f * kX, space, {dense_view(space)}},
                          .reads = {parameter},
                          .writes = {op_.reads.back()}});
    }
    y_ = t_.run(result);
    op_.writes = {y_};
  }

  // Adds an operand of indices.
  void indices(const std::vector<double>& values) {
    const BufferId id = t_.buffer({static_cast<int64_t>(values.size())}, DType::i32);
    op_.reads.push_back(id);
    integers_.emplace_back(id, values);
  }

  // Adds the indices that a sort of the first operand gives, whose elements become different from each other.
  void order(const SortAttrs& attrs) {
    for (size_t i = 0; i < values_[0].size(); ++i) values_[0][i] += static_cast<double>(i) / 65536;
    const BufferId id = t_.buffer(t_.program.at(y_).shape, DType::i32);
    forward_.push_back(
        {.op = OpKind::sort, .attrs = attrs, .reads = {op_.reads[0]}, .writes = {id}});
    op_.reads.push_back(id);
  }

  void check(Draw& draw) {
    forward_.push_back(op_);
    REQUIRE(t_.refusal(op_) == "");
    const std::vector<double> d_y = random_values(draw, t_.program.at(y_).shape.elements());
    Gradients g(t_.program);
    for (const Instruction& op : forward_) g.mark(op);
    const BufferId seed = g.like(y_);
    g.contribute(y_, seed);
    for (size_t i = forward_.size(); i-- > 0;)
      if (g.needs(forward_[i].writes[0])) rule_of(forward_[i].op).backward(forward_[i], g);
    GeneralInterpreter run(t_.program);
    compute(run);
    run[seed] = d_y;
    for (const Instruction& op : t_.program.instructions) {
      REQUIRE(t_.refusal(op) == "");
      run.run(op);
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const std::vector<double>& gradient = run[t_.program.parameters[i].gradient];
      REQUIRE(gradient.size() == values_[i].size());
      for (size_t e = 0; e < gradient.size(); ++e) {
        constexpr double kStep = 1e-5;
        const double expected = (loss(i, e, kStep, d_y) - loss(i, e, -kStep, d_y)) / (2 * kStep);
        INFO("operand " << i << ", element " << e);
        CHECK(gradient[e] == Approx(expected).margin(1e-6).epsilon(1e-6));
      }
    }
  }

 private:
  void compute(GeneralInterpreter& run) {
    for (size_t i = 0; i < inputs_.size(); ++i) run[inputs_[i]] = values_[i];
    for (const auto& [id, values] : integers_) run[id] = values;
    for (const Instruction& op : forward_) run.run(op);
  }

  double loss(size_t input, size_t element, double step, const std::vector<double>& d_y) {
    const double before = values_[input][element];
    values_[input][element] += step;
    GeneralInterpreter run(t_.program);
    compute(run);
    values_[input][element] = before;
    double sum = 0;
    for (size_t i = 0; i < d_y.size(); ++i) sum += d_y[i] * run[y_][i];
    return sum;
  }

  OneOp t_;
  Instruction op_;
  std::vector<Instruction> forward_;
  std::vector<BufferId> inputs_;
  std::vector<std::vector<double>> values_;
  std::vector<std::pair<BufferId, std::vector<double>>> integers_;
  BufferId y_ = kNone;
};

// Returns a random view that has a way back, bounded or not.
RandomOperand view_with_adjoint(Draw& draw, const Shape& space, bool bounds) {
  for (;;) {
    RandomOperand operand = random_view(draw, space, false);
    for (int d = 0; d < space.rank && bounds; ++d) {
      const auto i = static_cast<size_t>(d);
      if (!draw.once_in(3)) continue;
      operand.view.begin[i] = draw(0, space[d] - 1);
      operand.view.end[i] = draw(operand.view.begin[i] + 1, space[d]);
    }
    if (Adjoint::of(View{operand.view.offset, operand.view.strides}, space, operand.elements))
      return operand;
  }
}

}  // namespace

TEST_CASE("gradients of maps and reductions are those of finite differences") {
  const Formula formulas[] = {kX * kY, tangent(kX) - kY / 3, kX / (kY * kY + 1),
                              exponential(kX * 0.5f) + kY};
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Draw draw(seed);
    const Shape space = random_space(draw, 4, 40);
    const bool bounds = draw.once_in(3);
    const RandomOperand x = view_with_adjoint(draw, space, bounds),
                        y = view_with_adjoint(draw, space, bounds);
    const Formula& formula = formulas[seed % 4];
    INFO("seed " << seed << ": " << to_string(space));
    if (draw.once_in(2)) {
      GradientCase(draw, {.op = OpKind::map, .attrs = MapAttrs{formula, space, {x.view, y.view}}},
                   {x.elements, y.elements}, space)
          .check(draw);
      continue;
    }
    ReduceAttrs attrs{.kind = Reduction(draw(0, 2)),
                      .formula = formula,
                      .space = space,
                      .kept = static_cast<int>(draw(0, space.rank)),
                      .views = {x.view, y.view}};
    Shape result = space;
    result.rank = attrs.kept;
    if (result.rank == 0) result.append(1);
    GradientCase(draw, {.op = OpKind::reduce, .attrs = attrs}, {x.elements, y.elements}, result)
        .check(draw);
  }
}

TEST_CASE("equal largest values share a gradient") {
  OneOp t;
  const Shape space{4};
  const BufferId x = t.parameter({4}), y = t.run({1});
  const Instruction op{
      .op = OpKind::reduce,
      .attrs =
          ReduceAttrs{.kind = Reduction::maximum, .space = space, .views = {dense_view(space)}},
      .reads = {x},
      .writes = {y}};
  Gradients g(t.program);
  g.mark(op);
  const BufferId d_y = g.like(y);
  g.contribute(y, d_y);
  rule_of(op.op).backward(op, g);
  GeneralInterpreter run(t.program);
  run[x] = {1, 7, 7, 3};
  run.run(op);
  run[d_y] = {3};
  for (const Instruction& i : t.program.instructions) run.run(i);
  CHECK(run[t.program.parameters[0].gradient] == std::vector<double>{0, 1.5, 1.5, 0});
}

TEST_CASE("gradients of contractions are those of finite differences") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Draw draw(seed);
    ContractAttrs c{.batch = draw.once_in(3) ? Shape{} : random_space(draw, 2, 4),
                    .m = draw(1, 4),
                    .n = draw(1, 4),
                    .k = draw(1, 4)};
    Shape of_a = c.batch, of_b = c.batch, of_y = c.batch;
    for (const auto& [shape, rows, columns] :
         {std::tuple(&of_a, c.m, c.k), {&of_b, c.n, c.k}, {&of_y, c.m, c.n}}) {
      shape->append(rows);
      shape->append(columns);
    }
    const RandomOperand a = view_with_adjoint(draw, of_a, false),
                        b = view_with_adjoint(draw, of_b, false);
    c.a = a.view;
    c.b = b.view;
    Shape result;
    if (draw.once_in(2)) c.summed = static_cast<int>(draw(0, c.batch.rank));
    for (int d = c.summed; d < of_y.rank; ++d) result.append(of_y[d]);
    INFO("seed " << seed);
    GradientCase(draw, {.op = OpKind::contract, .attrs = c}, {a.elements, b.elements}, result)
        .check(draw);
  }
}

TEST_CASE("gradients of windows and of their sums are those of finite differences") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Draw draw(seed);
    WindowAttrs w{
        .planes = draw(1, 2), .channels = draw(1, 3), .outside = draw.once_in(2) ? 0.0f : 2.0f};
    for (size_t i = 1; i < 3; ++i)
      w.dimensions[i] = {.size = draw(1, 5),
                         .kernel = draw(1, 3),
                         .stride = draw(1, 2),
                         .padding = draw(0, 1),
                         .dilation = draw(1, 2),
                         .out = draw(1, 4)};
    const int64_t elements = w.planes * w.positions() * w.channels,
                  windows = w.planes * w.kernel() * w.windows() * w.channels;
    INFO("seed " << seed);
    if (draw.once_in(2))
      GradientCase(draw, {.op = OpKind::window, .attrs = w}, {elements}, {windows}).check(draw);
    else
      GradientCase(draw, {.op = OpKind::window_grad, .attrs = w}, {windows}, {elements})
          .check(draw);
  }
}

TEST_CASE("gradients of take and put are those of finite differences") {
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Draw draw(seed);
    TakeAttrs attrs{.space = random_space(draw, 3, 30)};
    const RandomOperand table = random_view(draw, attrs.space, false);
    attrs.table = table.view;
    const RandomOperand of = random_view(draw, attrs.space, false);
    attrs.indices = {{of.view, table.elements, draw(1, 4)}};
    const int64_t size = attrs.indices[0].size, all = table.elements * size;
    std::vector<double> indices;
    for (int64_t i = 0; i < of.elements; ++i)
      indices.push_back(static_cast<double>(draw(-size, size - 1)));
    INFO("seed " << seed);
    const bool takes = draw.once_in(2);
    GradientCase gradient(draw, {.op = takes ? OpKind::take : OpKind::put, .attrs = attrs},
                          {takes ? all : attrs.space.elements()}, takes ? attrs.space : Shape{all});
    gradient.indices(indices);
    gradient.check(draw);
  }
}

Lines random_lines(Draw& draw) {
  return {draw(1, 6), draw.once_in(2) ? 1 : draw(2, 3)};
}

TEST_CASE("gradients of running sums are those of finite differences") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Draw draw(seed);
    const ScanAttrs attrs{random_lines(draw), draw.once_in(2), draw.once_in(2)};
    const int64_t elements = draw(1, 3) * attrs.lines.size * attrs.lines.apart;
    INFO("seed " << seed);
    GradientCase(draw, {.op = OpKind::scan, .attrs = attrs}, {elements}, {elements}).check(draw);
  }
}

TEST_CASE("gradients of sorted values are those of finite differences") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Draw draw(seed);
    SortAttrs attrs{.lines = random_lines(draw), .descending = draw.once_in(2)};
    attrs.kept = draw(1, attrs.lines.size);
    const int64_t elements = draw(1, 3) * attrs.lines.size * attrs.lines.apart;
    const TakeAttrs take = take_sorted(attrs, elements);
    INFO("seed " << seed);
    GradientCase sorted(draw, {.op = OpKind::take, .attrs = take}, {elements}, take.space);
    sorted.order(attrs);
    sorted.check(draw);
  }
}

}  // namespace dstrain
