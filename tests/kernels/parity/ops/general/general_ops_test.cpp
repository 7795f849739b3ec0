// map, reduce, contract, take and put over random index spaces and views, against their definitions in double precision.
#include <cmath>

#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/general/random_walk.h"

namespace dstrain::parity {
namespace {

const Formula kFirst = Formula::input(0), kSecond = Formula::input(1);

TEST_CASE("a map reads its operands through any views") {
  Sample sample = sample_if_emulated(3);
  const Formula formulas[] = {kFirst, kFirst * kSecond + kFirst, kFirst - 2 * kSecond,
                              select(Formula::inside(0), kFirst + 1, kSecond)};
  for (uint64_t seed = 0; seed < 500; ++seed) {
    if (!sample.takes()) continue;
    Draw draw(seed);
    const DType dtype = kRunTypes[draw(0, 2)];
    const Shape space = random_space(draw, 5, 2000);
    const size_t operands = seed % 4 == 0 ? 1 : 2;
    const bool bounds = draw.once_in(2);
    const RandomWalk walk(draw, space, operands, dtype, bounds);
    const Formula& formula = formulas[seed % 4];
    std::vector<double> expected;
    for_indices(
        space, [&](const View::Numbers& index) { expected.push_back(walk.value(formula, index)); });
    INFO("seed " << seed << ", " << name_of(dtype) << " " << to_string(space));
    const auto got =
        run_everywhere({.op = OpKind::map, .attrs = MapAttrs{formula, space, walk.views}}, walk.in,
                       {{space, dtype}});
    require_near("map", got[0].values(), expected, dtype, 1e-6);
  }
}

TEST_CASE("integers are operands of a map, and a map can be added to what is there") {
  const Shape space{3, 4};
  Operand integers{{4}, DType::i32, {-1, 0, 7, 16777216}};
  Operand before{{12}, DType::f32, normal_values(12, 3)};
  const View columns = *broadcast_view({4}, space);
  before.same_as = -1;
  const Call call{
      .op = OpKind::map, .attrs = MapAttrs{kFirst * 2, space, {columns}}, .accumulate = true};
  const auto got = run_at_offset(call, {integers}, {before}, 0);
  std::vector<double> expected;
  for (size_t i = 0; i < 12; ++i) expected.push_back(before.values[i] + 2 * integers.values[i % 4]);
  require_close("map", got[0].values(), expected, tolerance_of(DType::f32));
}

TEST_CASE("a map may give integers, which lose what is behind the point") {
  const Shape space{2, 3};
  const Operand x{{3}, DType::f32, {-1.75, 2.5, 16777216}};
  const Operand ids{{2, 3}, DType::i32, {4, -7, 0, 1, 2, 3}};
  const MapAttrs attrs{kFirst + kSecond, space, {*broadcast_view({3}, space), dense_view(space)}};
  const auto got =
      run_everywhere({.op = OpKind::map, .attrs = attrs}, {x, ids}, {{space, DType::i32}});
  CHECK(got[0].values() == std::vector<double>{2, -4, 16777216, 0, 4, 16777220});
}

TEST_CASE("a reduction has the sums, the largest and the smallest values of any views") {
  Sample sample = sample_if_emulated(3);
  for (uint64_t seed = 0; seed < 500; ++seed) {
    if (!sample.takes()) continue;
    Draw draw(1000 + seed);
    const DType dtype = kRunTypes[draw(0, 2)];
    const Shape space = random_space(draw, 5, seed % 50 == 0 ? 200000 : 3000);
    const auto kept = static_cast<int>(draw(0, space.rank));
    const auto kind = Reduction(draw(0, 2));
    const bool bounds = draw.once_in(4);
    const RandomWalk walk(draw, space, 2, dtype, bounds);
    const Formula formula = draw.once_in(2) ? kFirst : kFirst * kSecond;
    Shape results = space;
    results.rank = kept;
    const auto count = static_cast<size_t>(results.elements());
    const size_t terms = static_cast<size_t>(space.elements()) / count;
    const double none = kind == Reduction::sum       ? 0
                        : kind == Reduction::maximum ? -HUGE_VAL
                                                     : HUGE_VAL;
    std::vector<double> expected(count, none);
    size_t at = 0;
    double size = 0;
    for_indices(space, [&](const View::Numbers& index) {
      const double value = walk.value(formula, index);
      double& to = expected[at++ / terms];
      size = std::max(size, std::abs(value));
      to = kind == Reduction::sum       ? to + value
           : kind == Reduction::maximum ? std::max(to, value)
                                        : std::min(to, value);
    });
    INFO("seed " << seed << ", " << name_of(dtype) << " " << to_string(space) << " keeps " << kept);
    const Call call{.op = OpKind::reduce,
                    .attrs = ReduceAttrs{kind, formula, space, kept, walk.views}};
    const auto got = run_everywhere(call, walk.in, {{results, dtype}});
    // Terms may cancel: their size counts, too.
    double largest = 0;
    for (const double value : expected) largest = std::max(largest, std::abs(value));
    const double of_terms = size * std::sqrt(static_cast<double>(terms)) / std::max(largest, 1e-30);
    require_near("reduce", got[0].values(), expected, dtype, 2e-6 * std::max(1.0, of_terms / 8));
  }
}

TEST_CASE("a reduction passes NaN and infinity on, and is added to what is there") {
  const double inf = HUGE_VAL, nan = std::nan("");
  const Shape space{3, 3};
  const Operand x{{9}, DType::f32, {1, nan, 2, inf, 1, 2, -inf, 1, 5}};
  const auto result = [&](Reduction kind) {
    return run_everywhere({.op = OpKind::reduce,
                           .attrs = ReduceAttrs{kind, kFirst, space, 1, {dense_view(space)}}},
                          {x}, {{{3}, DType::f32}})[0]
        .values();
  };
  for (const Reduction kind : {Reduction::sum, Reduction::maximum, Reduction::minimum})
    CHECK(std::isnan(result(kind)[0]));
  CHECK(result(Reduction::maximum)[1] == inf);
  CHECK(result(Reduction::minimum)[1] == 1);
  CHECK(result(Reduction::minimum)[2] == -inf);
  CHECK(result(Reduction::sum)[2] == -inf);
  const Operand before{{3}, DType::f32, {1, 2, 3}};
  const Operand finite{{9}, DType::f32, {1, 2, 3, 4, 5, 6, 7, 8, 9}};
  const Call call{.op = OpKind::reduce,
                  .attrs = ReduceAttrs{Reduction::sum, kFirst, space, 1, {dense_view(space)}},
                  .accumulate = true};
  CHECK(run_at_offset(call, {finite}, {before}, 0)[0].values() == std::vector<double>{7, 17, 27});
}

TEST_CASE("a contraction is a batch of products of any views") {
  Sample sample = sample_if_emulated(3);
  for (uint64_t seed = 0; seed < 300; ++seed) {
    if (!sample.takes()) continue;
    Draw draw(2000 + seed);
    const DType dtype = kRunTypes[draw(0, 2)];
    const bool exact = draw.once_in(2), adds = exact && draw.once_in(2);
    const DType result = exact ? DType::f32 : dtype;
    ContractAttrs c{
        .batch = draw.once_in(3) ? Shape{} : random_space(draw, 3, draw.once_in(4) ? 40 : 6),
        .m = draw(1, 20),
        .n = draw(1, 20),
        .k = draw(1, 40)};
    const auto space_of = [&](int64_t rows, int64_t columns) {
      Shape space = c.batch;
      space.append(rows);
      space.append(columns);
      return space;
    };
    if (exact) c.summed = static_cast<int>(draw(0, c.batch.rank));
    const Shape of_a = space_of(c.m, c.k), of_b = space_of(c.n, c.k), all = space_of(c.m, c.n);
    Shape of_y;
    for (int d = c.summed; d < all.rank; ++d) of_y.append(all[d]);
    const RandomOperand a = random_view(draw, of_a, false), b = random_view(draw, of_b, false);
    c.a = a.view;
    c.b = b.view;
    const Operand in_a = random_operand(a.elements, dtype, seed * 2 + 1),
                  in_b = random_operand(b.elements, dtype, seed * 2 + 2);
    const Operand before{of_y, result,
                         adds ? normal_values(of_y.elements(), seed) : std::vector<double>()};
    const auto row = static_cast<size_t>(c.batch.rank), column = row + 1;
    std::vector<double> expected(static_cast<size_t>(of_y.elements()), 0);
    if (adds) expected = rounded(before.values, result);
    size_t at = 0;
    for_indices(all, [&](const View::Numbers& index) {
      double& sum = expected[at++ % expected.size()];
      for (int64_t k = 0; k < c.k; ++k) {
        View::Numbers at_a = index, at_b = index;
        at_a[column] = at_b[column] = k;
        at_b[row] = index[column];
        sum += value_at(in_a, c.a, at_a) * value_at(in_b, c.b, at_b);
      }
    });
    INFO("seed " << seed << ", " << name_of(dtype) << " to " << name_of(result) << " batch "
                 << to_string(c.batch) << " m " << c.m << " n " << c.n << " k " << c.k);
    const Call call{.op = OpKind::contract, .attrs = c, .accumulate = adds};
    const auto got = adds ? run_at_offset(call, {in_a, in_b}, {before}, 0)
                          : run_everywhere(call, {in_a, in_b}, {before});
    require_near("contract", got[0].values(), expected, result, 2e-6);
  }
}

// A table that is read through a view and through indices.
struct RandomTake {
  TakeAttrs attrs;
  std::vector<Operand> indices;
  int64_t elements = 0;

  explicit RandomTake(Draw& draw) {
    attrs.space = random_space(draw, 4, 600);
    const RandomOperand table = random_view(draw, attrs.space, false);
    attrs.table = table.view;
    elements = table.elements;
    const auto count = static_cast<size_t>(draw(1, 3));
    for (size_t i = 0; i < count; ++i) {
      RandomOperand of = random_view(draw, attrs.space, false);
      if (draw.once_in(2)) of.view.strides[static_cast<size_t>(attrs.space.rank - 1)] = 0;
      const TakeAttrs::Indices how{of.view, elements, draw(1, 7)};
      Operand values{{of.elements}, DType::i32, {}};
      for (int64_t k = 0; k < of.elements; ++k)
        values.values.push_back(static_cast<double>(draw(-how.size, how.size - 1)));
      if (draw.once_in(8)) values.values[0] = static_cast<double>(how.size);  // outside
      elements *= how.size;
      attrs.indices.push_back(how);
      indices.push_back(std::move(values));
    }
  }

  // Returns the element that an index names; -1: there is none.
  int64_t element(const View::Numbers& index) const {
    int64_t element = element_at(attrs.table, index);
    for (size_t i = 0; i < indices.size(); ++i) {
      const TakeAttrs::Indices& how = attrs.indices[i];
      auto named = static_cast<int64_t>(value_at(indices[i], how.view, index));
      if (named < 0) named += how.size;
      if (named < 0 || named >= how.size) return -1;
      element += named * how.stride;
    }
    return element;
  }
};

TEST_CASE("take reads, and put adds to, the elements that indices name") {
  Sample sample = sample_if_emulated(3);
  for (uint64_t seed = 0; seed < 500; ++seed) {
    if (!sample.takes()) continue;
    Draw draw(3000 + seed);
    const DType dtype = kRunTypes[draw(0, 2)];
    const RandomTake take(draw);
    const Shape& space = take.attrs.space;
    const Operand table = random_operand(take.elements, dtype, seed + 7);
    const Operand values{space, dtype, rounded(normal_values(space.elements(), seed), dtype)};
    std::vector<double> taken, put(static_cast<size_t>(take.elements), 0);
    for_indices(space, [&](const View::Numbers& index) {
      const int64_t element = take.element(index);
      if (element >= 0) put[static_cast<size_t>(element)] += values.values[taken.size()];
      taken.push_back(element < 0 ? std::nan("") : table.values[static_cast<size_t>(element)]);
    });
    INFO("seed " << seed << ", " << name_of(dtype) << " " << to_string(space));
    std::vector<Operand> in{table}, back{values};
    in.insert(in.end(), take.indices.begin(), take.indices.end());
    back.insert(back.end(), take.indices.begin(), take.indices.end());
    const auto got =
        run_everywhere({.op = OpKind::take, .attrs = take.attrs}, in, {{space, dtype}});
    require_close("take", got[0].values(), taken, {});
    const DType result = draw.once_in(2) ? DType::f32 : dtype;
    const auto sums =
        run_everywhere({.op = OpKind::put, .attrs = take.attrs}, back, {{{take.elements}, result}});
    require_near("put", sums[0].values(), put, result, 2e-6);
  }
}

TEST_CASE("a loss is the sum of its elements, which all have one gradient") {
  StepState state;
  state.d_loss = 0.25f;
  for (const DType dtype : kRunTypes)
    for (const int64_t n : {1, 5, 300}) {
      const Operand x = random_operand(n, dtype, 5), d_x{{n}, dtype};
      const Call call{.op = OpKind::sum_loss, .attrs = SumLossAttrs{3}, .state = &state};
      const auto got = run_everywhere(call, {x}, {{{1}, DType::f64}, d_x});
      double sum = 0;
      for (const double value : x.values) sum += value;
      CHECK(got[0].values()[0] == Approx(sum).epsilon(1e-12));
      CHECK(got[1].values() == std::vector<double>(static_cast<size_t>(n), 0.75));
      Call adds = call;
      adds.accumulate = true;
      const auto more = run_at_offset(adds, {x}, {{{1}, DType::f64, {2}}, absent()}, 0);
      CHECK(more[0].values()[0] == Approx(2 + sum).epsilon(1e-12));
    }
}

}  // namespace
}  // namespace dstrain::parity
