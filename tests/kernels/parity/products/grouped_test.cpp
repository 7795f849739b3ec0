// The products of the rows of experts against those of each expert by itself.
#include <numeric>

#include "tests/kernels/parity/ops/run_op.h"
#include "tests/kernels/parity/products/product_operands.h"

namespace dstrain::products_test {
namespace {

using parity::Operand;

// How many rows each expert has, and the sizes of a product.
struct Groups {
  std::vector<int64_t> counts;
  int64_t in = 1, out = 1;

  int64_t rows() const { return std::accumulate(counts.begin(), counts.end(), int64_t{0}); }
  int64_t experts() const { return static_cast<int64_t>(counts.size()); }
  Operand ends() const {
    Operand ends{{experts()}, DType::i32, {}};
    double end = 0;
    for (const int64_t count : counts) ends.values.push_back(end += static_cast<double>(count));
    return ends;
  }
};

const std::vector<Groups>& groups() {
  static const std::vector<Groups> all{{{1}, 1, 1},
                                       {{5}, 33, 17},
                                       {{0, 3, 0, 0, 4}, 7, 3},
                                       {{33, 0, 1, 64}, 65, 129},
                                       {{2, 2, 2, 2, 2, 2, 2, 2}, 40, 24},
                                       {{0, 0, 100}, 20, 96}};
  return all;
}

Values part(const Values& all, int64_t first, int64_t count) {
  return {all.begin() + first, all.begin() + first + count};
}

void append(Values& to, const Values& more) {
  to.insert(to.end(), more.begin(), more.end());
}

struct Operands3 {
  Operand x, w, d_y;

  Operands3(const Groups& g, DType dtype, Values (*fill)(int64_t, uint64_t))
      : x{{g.rows(), g.in}, dtype, rounded(fill(g.rows() * g.in, 1), dtype)},
        w{{g.experts() * g.out, g.in}, dtype, rounded(fill(g.experts() * g.out * g.in, 2), dtype)},
        d_y{{g.rows(), g.out}, dtype, rounded(fill(g.rows() * g.out, 4), dtype)} {}
};

// Calls f(expert, its first row, its product).
template <class F>
void for_experts(const Groups& g, const F& f) {
  int64_t first = 0;
  for (int64_t e = 0; e < g.experts(); ++e) {
    const int64_t count = g.counts[static_cast<size_t>(e)];
    f(e, first, Size{count, g.in, g.out});
    first += count;
  }
}

void check_all(const Groups& g, DType dtype, Values (*fill)(int64_t, uint64_t), double scale) {
  const Operands3 o(g, dtype, fill);
  Values y, d_x, d_w, d_w_twice;
  const Values start = rounded(fill(g.experts() * g.out * g.in, 9), DType::f32);
  for_experts(g, [&](int64_t e, int64_t first, const Size& s) {
    const Values x = part(o.x.values, first * g.in, s.rows * g.in),
                 w = part(o.w.values, e * g.out * g.in, g.out * g.in),
                 d_y = part(o.d_y.values, first * g.out, s.rows * g.out);
    append(y, multiply(s, x, w));
    append(d_x, input_grad(s, d_y, w));
    append(d_w, weight_grad(s, d_y, x, Values(w.size())));
    append(d_w_twice, weight_grad(s, d_y, x, part(start, e * g.out * g.in, g.out * g.in)));
  });
  const auto allowed = [&](DType of, int64_t k) {
    return scale == 0 ? parity::Tolerance{} : tolerance(of, k);
  };
  const auto exact = [&](Values v, DType of) { return scale == 0 ? rounded(std::move(v), of) : v; };
  const auto rows = parity::run_everywhere({.op = OpKind::grouped_linear}, {o.x, o.w, g.ends()},
                                           {{o.d_y.shape, dtype}});
  parity::require_close("y", rows[0].values(), exact(y, dtype), allowed(dtype, g.in));
  const auto back = parity::run_everywhere({.op = OpKind::grouped_input_grad},
                                           {o.d_y, o.w, g.ends()}, {{o.x.shape, dtype}});
  parity::require_close("d_x", back[0].values(), exact(d_x, dtype), allowed(dtype, g.out));
  const auto weights = parity::run_everywhere({.op = OpKind::grouped_weight_grad},
                                              {o.d_y, o.x, g.ends()}, {{o.w.shape, DType::f32}});
  parity::require_close("d_w", weights[0].values(), d_w, allowed(DType::f32, g.rows()));
  const auto added =
      parity::run_everywhere({.op = OpKind::grouped_weight_grad, .accumulate = true},
                             {o.d_y, o.x, g.ends()}, {{o.w.shape, DType::f32, start}});
  parity::require_close("added d_w", added[0].values(), d_w_twice, allowed(DType::f32, g.rows()));
}

}  // namespace

TEST_CASE("products of experts' rows are those of each expert; one without rows has no gradient") {
  for (const Groups& g : groups())
    for (const DType dtype : kDTypes) {
      CAPTURE(g.counts, g.in, g.out, name_of(dtype));
      check_all(g, dtype, integers, 0);
      check_all(g, dtype, gaussian, 1);
    }
}

TEST_CASE(
    "rows of several ranks meet the experts' weights in turns; each has a term of the gradients") {
  const Groups g{{3, 0, 70, 1, 33, 2}, 40, 24};  // three ranks, two experts
  const int64_t senders = 3, experts = g.experts() / senders, of_weight = g.out * g.in;
  const GroupedAttrs attrs{.senders = senders};
  for (const DType dtype : kDTypes) {
    CAPTURE(name_of(dtype));
    Operands3 o(g, dtype, gaussian);
    o.w.values.resize(static_cast<size_t>(experts * of_weight));
    o.w.shape = {experts * g.out, g.in};
    Values y, d_x, d_w;
    for_experts(g, [&](int64_t group, int64_t first, const Size& s) {
      const Values x = part(o.x.values, first * g.in, s.rows * g.in),
                   w = part(o.w.values, group % experts * of_weight, of_weight),
                   d_y = part(o.d_y.values, first * g.out, s.rows * g.out);
      append(y, multiply(s, x, w));
      append(d_x, input_grad(s, d_y, w));
      append(d_w, weight_grad(s, d_y, x, Values(w.size())));
    });
    const auto rows = parity::run_everywhere({.op = OpKind::grouped_linear, .attrs = attrs},
                                             {o.x, o.w, g.ends()}, {{o.d_y.shape, dtype}});
    parity::require_close("y", rows[0].values(), y, tolerance(dtype, g.in));
    const auto back = parity::run_everywhere({.op = OpKind::grouped_input_grad, .attrs = attrs},
                                             {o.d_y, o.w, g.ends()}, {{o.x.shape, dtype}});
    parity::require_close("d_x", back[0].values(), d_x, tolerance(dtype, g.out));
    const auto weights =
        parity::run_everywhere({.op = OpKind::grouped_weight_grad, .attrs = attrs},
                               {o.d_y, o.x, g.ends()}, {{{g.experts() * g.out, g.in}, DType::f32}});
    parity::require_close("d_w", weights[0].values(), d_w, tolerance(DType::f32, g.rows()));
  }
}

TEST_CASE("a row's product has the same bits however many rows its expert has") {
  const int64_t rows = 70, in = 200, out = 40;
  for (const DType dtype : kDTypes)
    for (const OpKind op : {OpKind::grouped_linear, OpKind::grouped_input_grad}) {
      CAPTURE(name_of(dtype), name_of(op));
      const bool forward = op == OpKind::grouped_linear;
      const int64_t from = forward ? in : out, to = forward ? out : in;
      const Values x = rounded(gaussian(rows * from, 1), dtype),
                   w = rounded(gaussian(out * in, 2), dtype);
      const auto run = [&](int64_t first, int64_t count) {
        return parity::run_everywhere({.op = op},
                                      {{{count, from}, dtype, part(x, first * from, count * from)},
                                       {{out, in}, dtype, w},
                                       {{1}, DType::i32, {static_cast<double>(count)}}},
                                      {{{count, to}, dtype}})[0]
            .raw();
      };
      const std::string all = run(0, rows);
      const auto row_bytes = static_cast<size_t>(to * size_of(dtype));
      for (const auto& [first, count] : {std::pair{0, 1}, {5, 1}, {31, 2}, {33, 37}, {1, 64}})
        CHECK(run(first, count) == all.substr(static_cast<size_t>(first) * row_bytes,
                                              static_cast<size_t>(count) * row_bytes));
    }
}

}  // namespace dstrain::products_test
