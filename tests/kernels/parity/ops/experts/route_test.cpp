// route, route_grad and group_rows against their definitions in double precision.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

struct Case {
  int64_t rows = 1, experts = 1, slots = 1;
  RouteAttrs attrs{};
  bool bias = false;
};

std::vector<Case> cases() {
  using enum RouterScores;
  return {{.rows = 1, .experts = 1, .slots = 1},
          {.rows = 7, .experts = 5, .slots = 1, .attrs = {.normalised = true}},
          {.rows = 33, .experts = 8, .slots = 2, .attrs = {.normalised = true}},
          {.rows = 70, .experts = 60, .slots = 4, .attrs = {.rounded = true}},
          {.rows = 9, .experts = 128, .slots = 8, .attrs = {.normalised = true, .rounded = true}},
          {.rows = 20, .experts = 6, .slots = 6},
          {.rows = 31, .experts = 32, .slots = 4, .attrs = {.scores = chosen}},
          {.rows = 31, .experts = 16, .slots = 3, .attrs = {.scores = sigmoid}, .bias = true},
          {.rows = 40,
           .experts = 32,
           .slots = 5,
           .attrs = {.scores = sigmoid,
                     .normalised = true,
                     .epsilon = 1e-20f,
                     .scale = 2.5f,
                     .groups = 8,
                     .kept_groups = 4},
           .bias = true},
          {.rows = 12,
           .experts = 12,
           .slots = 4,
           .attrs = {.scores = sigmoid, .normalised = true, .groups = 4, .kept_groups = 2}}};
}

// A row's experts and their weights, and the slopes of these.
class Definition {
 public:
  Definition(const Case& c, std::vector<double> logits, std::vector<double> bias)
      : c_(c), logits_(std::move(logits)), bias_(std::move(bias)) {}

  std::vector<size_t> chosen() const {
    std::vector<double> order = logits_;
    if (c_.attrs.scores == RouterScores::sigmoid)
      for (size_t e = 0; e < order.size(); ++e)
        order[e] = 1 / (1 + std::exp(-logits_[e])) + (bias_.empty() ? 0 : bias_[e]);
    const auto groups = static_cast<size_t>(c_.attrs.groups), size = order.size() / groups;
    std::vector<double> of_group;
    for (size_t g = 0; g < groups; ++g) {
      std::vector<double> in(order.begin() + static_cast<long>(g * size),
                             order.begin() + static_cast<long>((g + 1) * size));
      std::ranges::sort(in, std::greater());
      of_group.push_back(in[0] + (in.size() > 1 ? in[1] : 0));
    }
    std::vector<size_t> kept = best(of_group, static_cast<size_t>(c_.attrs.kept_groups));
    for (size_t e = 0; e < order.size(); ++e)
      if (std::ranges::find(kept, e / size) == kept.end()) order[e] = -HUGE_VAL;
    return best(order, static_cast<size_t>(c_.slots));
  }

  std::vector<double> weights(const std::vector<size_t>& chosen) const {
    std::vector<double> scores;
    double sum = 0;
    for (size_t e = 0; e < logits_.size(); ++e)
      if (c_.attrs.scores == RouterScores::softmax || std::ranges::find(chosen, e) != chosen.end())
        sum += std::exp(logits_[e]);
    for (const size_t e : chosen)
      scores.push_back(c_.attrs.scores == RouterScores::sigmoid ? 1 / (1 + std::exp(-logits_[e]))
                                                                : std::exp(logits_[e]) / sum);
    const double all =
        std::accumulate(scores.begin(), scores.end(), static_cast<double>(c_.attrs.epsilon));
    for (double& score : scores) {
      if (c_.attrs.normalised) score /= all;
      score *= static_cast<double>(c_.attrs.scale);
    }
    return scores;
  }

 private:
  static std::vector<size_t> best(const std::vector<double>& of, size_t count) {
    std::vector<size_t> order(of.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return of[a] > of[b]; });
    order.resize(count);
    return order;
  }

  const Case& c_;
  std::vector<double> logits_, bias_;
};

// Logits of a row that differ by so much that no rounding changes their order.
std::vector<double> logits_of(const Case& c, DType dtype) {
  std::vector<double> all;
  for (int64_t r = 0; r < c.rows; ++r) {
    std::vector<double> row(static_cast<size_t>(c.experts));
    const std::vector<double> by = uniform_values(c.experts, static_cast<uint64_t>(r + 5));
    std::vector<size_t> order(row.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::sort(order, [&](size_t a, size_t b) { return by[a] < by[b]; });
    for (size_t i = 0; i < order.size(); ++i)
      row[order[i]] = (static_cast<double>(i) - static_cast<double>(row.size()) / 2) / 16;
    all.insert(all.end(), row.begin(), row.end());
  }
  return rounded(all, dtype);
}

std::vector<double> row_of(const std::vector<double>& all, int64_t row, int64_t columns) {
  return {all.begin() + row * columns, all.begin() + (row + 1) * columns};
}

}  // namespace

TEST_CASE("a router chooses the best experts of each row, and weighs them") {
  for (const Case& c : cases())
    for (const DType dtype : kRunTypes) {
      CAPTURE(c.rows, c.experts, c.slots, name_of(dtype));
      const std::vector<double> logits = logits_of(c, dtype);
      std::vector<double> bias;
      for (int64_t e = 0; c.bias && e < c.experts; ++e)
        bias.push_back(0.25 * static_cast<double>(e % 3));
      const Shape shape{c.rows, c.slots};
      const auto got = run_everywhere({.op = OpKind::route, .attrs = c.attrs},
                                      {{{c.rows, c.experts}, dtype, logits},
                                       c.bias ? Operand{{c.experts}, DType::f32, bias} : absent()},
                                      {{shape, DType::f32}, {shape, DType::i32}});
      std::vector<double> weights, experts;
      for (int64_t r = 0; r < c.rows; ++r) {
        const Definition row(c, row_of(logits, r, c.experts), bias);
        const std::vector<size_t> chosen = row.chosen();
        for (const double w : row.weights(chosen)) weights.push_back(w);
        for (const size_t e : chosen) experts.push_back(static_cast<double>(e));
      }
      CHECK(got[1].values() == experts);
      require_close("weights", got[0].values(), weights,
                    tolerance_of(c.attrs.rounded ? dtype : DType::f32));
      if (c.attrs.rounded) CHECK(got[0].values() == rounded(got[0].values(), dtype));
    }
}

TEST_CASE("of equal scores that of the first expert is chosen, and every choice is another one") {
  const auto got =
      run_everywhere({.op = OpKind::route, .attrs = RouteAttrs{.normalised = true}},
                     {{{4, 5}, DType::f32, {1,   1,   1,   1,   1,   0,  2,   1, 2,         1,
                                            NAN, NAN, NAN, NAN, NAN, -1, NAN, 3, -INFINITY, 3}},
                      absent()},
                     {{{4, 3}, DType::f32}, {{4, 3}, DType::i32}});
  const std::vector<double> experts = got[1].values();
  CHECK(row_of(experts, 0, 3) == std::vector<double>{0, 1, 2});
  CHECK(row_of(experts, 1, 3) == std::vector<double>{1, 3, 2});
  for (const int64_t r : {2, 3}) {
    std::vector<double> row = row_of(experts, r, 3);
    std::ranges::sort(row);
    CHECK(std::ranges::adjacent_find(row) == row.end());
    CHECK((row.front() >= 0 && row.back() < 5));
  }
}

TEST_CASE("a router's gradient is the slope of its weights") {
  for (const Case& c : cases()) {
    CAPTURE(c.rows, c.experts, c.slots);
    const std::vector<double> logits = logits_of(c, DType::f32);
    const std::vector<double> d_weights = uniform_values(c.rows * c.slots, 3);
    std::vector<double> experts, expected;
    for (int64_t r = 0; r < c.rows; ++r) {
      const std::vector<double> row = row_of(logits, r, c.experts),
                                d = row_of(d_weights, r, c.slots);
      const std::vector<size_t> chosen = Definition(c, row, {}).chosen();
      for (const size_t e : chosen) experts.push_back(static_cast<double>(e));
      for (size_t e = 0; e < row.size(); ++e) {
        std::vector<double> along(row.size());
        along[e] = 1;
        expected.push_back(directional_derivative(
            [&](const std::vector<double>& x) {
              return dot(Definition(c, x, {}).weights(chosen), d);
            },
            row, along));
      }
    }
    for (const DType dtype : kRunTypes) {
      const auto got = run_everywhere({.op = OpKind::route_grad, .attrs = c.attrs},
                                      {{{c.rows, c.slots}, DType::f32, d_weights},
                                       {{c.rows, c.experts}, dtype, logits},
                                       {{c.rows, c.slots}, DType::i32, experts}},
                                      {{{c.rows, c.experts}, dtype}});
      require_close("d_logits", got[0].values(), expected, tolerance_of(dtype));
    }
  }
}

TEST_CASE("rows of experts are in the order of experts, rows and slots") {
  for (const auto& [rows, slots, experts] :
       {std::array<int64_t, 3>{1, 1, 1}, {5, 2, 3}, {300, 3, 7}, {70, 8, 128}, {1000, 1, 2}}) {
    CAPTURE(rows, slots, experts);
    const std::vector<double> chosen = integer_values(rows * slots, 7, 0, experts);
    const auto got =
        run_everywhere({.op = OpKind::group_rows}, {{{rows, slots}, DType::i32, chosen}},
                       {{{rows, slots}, DType::i32}, {{experts}, DType::i32}});
    std::vector<size_t> order(chosen.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(order, [&](size_t a, size_t b) { return chosen[a] < chosen[b]; });
    std::vector<double> places(chosen.size()), ends;
    for (size_t i = 0; i < order.size(); ++i) places[order[i]] = static_cast<double>(i);
    for (int64_t e = 0; e < experts; ++e)
      ends.push_back(static_cast<double>(
          std::ranges::count_if(chosen, [e](double of) { return of <= static_cast<double>(e); })));
    CHECK(got[0].values() == places);
    CHECK(got[1].values() == ends);
  }
}

TEST_CASE("the groups of a rank's experts are those of each rank's rows, one after the other") {
  for (const auto& [ranks, experts] : {std::pair<int64_t, int64_t>{1, 3}, {2, 2}, {2, 8}, {3, 6}}) {
    const std::vector<double> counts = integer_values(ranks * experts, 11, 0, 5);
    std::vector<double> all_ends;
    for (int64_t i = 0; i < ranks * experts; ++i)
      all_ends.push_back(counts[static_cast<size_t>(i)] + (i % experts == 0 ? 0 : all_ends.back()));
    const int64_t own = experts / ranks;
    const auto count_of = [&](int64_t from, int64_t expert) {
      return counts[static_cast<size_t>(from * experts + expert)];
    };
    std::vector<double> for_each_rank;
    for (int64_t from = 0; from < ranks; ++from)
      for (int64_t to = 0; to < ranks; ++to) {
        for_each_rank.push_back(0);
        for (int64_t e = 0; e < own; ++e) for_each_rank.back() += count_of(from, to * own + e);
      }
    for (int64_t rank = 0; rank < ranks; ++rank) {
      CAPTURE(ranks, experts, rank);
      std::vector<double> ends;
      for (int64_t from = 0; from < ranks; ++from)
        for (int64_t e = 0; e < own; ++e)
          ends.push_back(count_of(from, rank * own + e) + (ends.empty() ? 0 : ends.back()));
      const auto got = run_everywhere(
          {.op = OpKind::expert_ends, .attrs = ExpertEndsAttrs{.ranks = ranks, .rank = rank}},
          {{{ranks, experts}, DType::i32, all_ends}},
          {{{experts}, DType::i32}, {{ranks, ranks}, DType::i32}});
      CHECK(got[0].values() == ends);
      CHECK(got[1].values() == for_each_rank);
    }
  }
}

}  // namespace dstrain::parity
