// class_sums and cross_entropy_part on parts of the classes, against cross_entropy on all of them.
#include <numeric>

#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

using LogitValues = std::vector<double>;

// The logits of `rows` rows, their targets (every fourth one is ignored) and how many classes each part has.
struct ClassParts {
  int64_t rows;
  std::vector<int64_t> classes;
  int64_t padding;  // columns after those of each part
  DType dtype;
  LogitValues logits{}, targets{};

  ClassParts(int64_t rows_, std::vector<int64_t> classes_, int64_t padding_, DType dtype_)
      : rows(rows_), classes(std::move(classes_)), padding(padding_), dtype(dtype_) {
    logits = rounded(normal_values(rows * all(), 1, 3), dtype);
    targets = integer_values(rows, 2, 0, all());
    for (size_t r = 3; r < targets.size(); r += 4) targets[r] = -1;
  }

  int64_t all() const { return std::accumulate(classes.begin(), classes.end(), int64_t{0}); }
  size_t count() const { return classes.size(); }
  int64_t first(size_t part) const {
    return std::accumulate(classes.begin(), classes.begin() + static_cast<ptrdiff_t>(part),
                           int64_t{0});
  }
  int64_t width(size_t part) const { return classes[part] + padding; }
  // Those of a part, with what `loss` says of the loss.
  CrossEntropyAttrs attrs(size_t part, CrossEntropyAttrs loss = {}) const {
    loss.classes = classes[part];
    loss.first_class = first(part);
    loss.all_classes = all();
    return loss;
  }
  Operand whole() const { return {Shape{rows, all()}, dtype, logits}; }
  Operand row_targets() const { return {Shape{rows}, DType::i32, targets}; }
  // The logits of a part; those of the padding are NaN.
  Operand part(size_t part) const {
    Operand o{Shape{rows, width(part)}, dtype};
    o.values.assign(static_cast<size_t>(rows * width(part)), std::nan(""));
    for (int64_t r = 0; r < rows; ++r)
      std::copy_n(logits.begin() + r * all() + first(part), classes[part],
                  o.values.begin() + r * width(part));
    return o;
  }
  // The sums of all parts, as class_sums finds them.
  Operand sums(const CrossEntropyAttrs& loss = {}) const {
    const int64_t numbers = loss.smoothing > 0 ? 4 : 3;
    Operand o{Shape{static_cast<int64_t>(count()), rows, numbers}, DType::f32};
    for (size_t p = 0; p < count(); ++p) {
      const auto got =
          run_everywhere({OpKind::class_sums, attrs(p, loss)}, {part(p), row_targets()},
                         {{Shape{rows, numbers}, DType::f32}})[0]
              .values();
      o.values.insert(o.values.end(), got.begin(), got.end());
    }
    return o;
  }
};

std::vector<ClassParts> cases_of_parts(DType dtype) {
  return {{1, {1}, 0, dtype},          {5, {65}, 3, dtype},         {40, {2, 1}, 0, dtype},
          {7, {33, 33, 31}, 2, dtype}, {150, {130, 170}, 1, dtype}, {3, {1, 1, 1}, 5, dtype},
          {6, {1500, 700}, 0, dtype},  {4, {2500}, 1, dtype}};
}

TEST_CASE(
    "class_sums has each row's largest logit, its sum of exponentials and its target's logit") {
  Sample sample = sample_if_emulated(2);
  for (DType dtype : kRunTypes)
    for (const ClassParts& c : cases_of_parts(dtype)) {
      if (!sample.takes()) continue;
      INFO(name_of(dtype) << " rows " << c.rows << " classes " << c.all());
      const LogitValues sums = c.sums().values;
      size_t at = 0;
      for (size_t p = 0; p < c.count(); ++p)
        for (int64_t r = 0; r < c.rows; ++r, at += 3) {
          const auto row = c.logits.begin() + r * c.all() + c.first(p);
          const double largest = *std::max_element(row, row + c.classes[p]);
          double total = 0;
          for (int64_t i = 0; i < c.classes[p]; ++i) total += std::exp(row[i] - largest);
          const auto target = static_cast<int64_t>(c.targets[static_cast<size_t>(r)]) - c.first(p);
          const bool here =
              target >= 0 && target < c.classes[p] && c.targets[static_cast<size_t>(r)] >= 0;
          REQUIRE(sums[at] == largest);
          REQUIRE(sums[at + 1] == Approx(total).epsilon(2e-6));
          REQUIRE(sums[at + 2] == (here ? row[target] : 0.0));
        }
    }
}

TEST_CASE("cross_entropy returns the loss and the gradient of all classes from parts of them") {
  Sample sample = sample_if_emulated(2);
  StepState state;
  state.d_loss = 0.37f;
  for (DType dtype : kRunTypes)
    for (const ClassParts& c : cases_of_parts(dtype)) {
      if (!sample.takes()) continue;
      INFO(name_of(dtype) << " rows " << c.rows << " classes " << c.all() << " parts "
                          << c.count());
      const Operand loss{Shape{1}, DType::f64};
      CrossEntropyAttrs of_loss{.weight = 3};
      if (c.rows % 2 == 1) of_loss.smoothing = 0.2f;
      if (c.rows % 3 == 0) of_loss.z_loss = 1e-3f;
      Call call{.op = OpKind::cross_entropy, .state = &state};
      call.attrs = of_loss;
      const auto whole = run_everywhere(call, {c.whole(), c.row_targets()},
                                        {loss, {Shape{c.rows, c.all()}, dtype}});
      const LogitValues gradient = whole[1].values();
      const double all_loss = whole[0].values()[0];
      const Operand sums = c.sums(of_loss);
      call.op = OpKind::cross_entropy_part;
      for (size_t p = 0; p < c.count(); ++p) {
        INFO("part " << p);
        call.attrs = c.attrs(p, of_loss);
        const std::vector<Operand> in{c.part(p), c.row_targets(), sums};
        const auto beside = run_everywhere(call, in, {loss, {in[0].shape, dtype}});
        const auto in_place = run_everywhere(call, in, {loss, {in[0].shape, dtype, {}, 0}});
        require_same_bits("loss in place", in_place[0], beside[0]);
        require_same_bits("d_logits in place", in_place[1], beside[1]);
        const auto alone = run_everywhere(call, in, {loss, absent()});
        require_same_bits("loss alone", alone[0], beside[0]);
        // The sums of a row are rounded to f32, and have some roundings more where exponentials are added in f32.
        require_close("loss", beside[0].values(), {all_loss},
                      {1e-14, static_cast<double>(c.rows) * 0x1p-20});
        LogitValues expected(static_cast<size_t>(c.rows * c.width(p)));
        for (int64_t r = 0; r < c.rows; ++r)
          std::copy_n(gradient.begin() + r * c.all() + c.first(p), c.classes[p],
                      expected.begin() + r * c.width(p));
        // The softmax has the roundings of the sums, the result one or two more to its dtype.
        require_close(
            "d_logits", beside[1].values(), expected,
            {2 * rounding_of(dtype).relative + 0x1p-20, 2 * rounding_of(dtype).absolute + 0x1p-20});
        const LogitValues got = beside[1].values();
        for (int64_t i = 0; i < c.rows * c.width(p); ++i) {
          const bool ignored = c.targets[static_cast<size_t>(i / c.width(p))] < 0;
          if (ignored || i % c.width(p) >= c.classes[p]) REQUIRE(got[static_cast<size_t>(i)] == 0);
        }
      }
    }
}

TEST_CASE("one part of up to 1024 classes has the bits of cross_entropy") {
  StepState state;
  state.d_loss = 0.37f;
  Sample sample = sample_if_emulated(1);
  for (DType dtype : kRunTypes)
    for (const int64_t v : {1, 2, 97, 1024}) {
      if (!sample.takes()) continue;
      const ClassParts c(41, {v}, 0, dtype);
      const std::vector<Operand> out{{Shape{1}, DType::f64}, {Shape{c.rows, v}, dtype}};
      CrossEntropyAttrs of_loss;
      if (v == 97) of_loss.z_loss = 1e-3f;
      Call call{.op = OpKind::cross_entropy, .attrs = of_loss, .state = &state};
      const auto whole = run_at_offset(call, {c.whole(), c.row_targets()}, out, 0);
      call.op = OpKind::cross_entropy_part;
      const auto part = run_at_offset(call, {c.whole(), c.row_targets(), c.sums(of_loss)}, out, 0);
      require_same_bits("loss", part[0], whole[0]);
      require_same_bits("d_logits", part[1], whole[1]);
    }
}

TEST_CASE("cross_entropy_part adds to the loss when it accumulates") {
  const ClassParts c(9, {5, 6}, 0, DType::f32);
  Call call{.op = OpKind::cross_entropy_part};
  call.attrs = c.attrs(1);
  const std::vector<Operand> in{c.part(1), c.row_targets(), c.sums()};
  const auto loss = run_at_offset(call, in, {{Shape{1}, DType::f64}, absent()}, 0);
  call.accumulate = true;
  const auto sum = run_at_offset(call, in, {{Shape{1}, DType::f64, {10}}, absent()}, 0);
  CHECK(sum[0].values()[0] == 10 + loss[0].values()[0]);
}

TEST_CASE("losses of rows, added to those of earlier rows, have the bits of all rows at once") {
  const ClassParts c(37, {5, 6}, 1, DType::f32);
  const LogitValues sums = c.sums().values;
  const Operand whole = c.part(1);
  const auto piece = [&](int64_t first, int64_t rows) {
    const auto cut = [&](const LogitValues& all, int64_t width) {
      return LogitValues(all.begin() + first * width, all.begin() + (first + rows) * width);
    };
    LogitValues of_rows = cut(sums, 3);
    const LogitValues second = cut(LogitValues(sums.begin() + c.rows * 3, sums.end()), 3);
    of_rows.insert(of_rows.end(), second.begin(), second.end());
    return std::vector<Operand>{{Shape{rows, c.width(1)}, c.dtype, cut(whole.values, c.width(1))},
                                {Shape{rows}, DType::i32, cut(c.targets, 1)},
                                {Shape{2, rows, 3}, DType::f32, of_rows}};
  };
  Call call{.op = OpKind::cross_entropy_part, .attrs = c.attrs(1)};
  const Operand loss{Shape{1}, DType::f64};
  const auto expected = run_at_offset(call, piece(0, c.rows), {loss, absent()}, 0);
  CrossEntropyAttrs by_row = c.attrs(1);
  by_row.by_row = true;
  const auto rows = run_at_offset({.op = OpKind::cross_entropy_part, .attrs = by_row}, piece(0, 20),
                                  {{Shape{20}, DType::f64}, absent()}, 0);
  std::vector<Operand> last = piece(20, c.rows - 20);
  last.push_back({Shape{20}, DType::f64, rows[0].values()});
  require_same_bits("loss", run_at_offset(call, last, {loss, absent()}, 0)[0], expected[0]);
}

TEST_CASE(
    "a part whose logits are all -infinity adds nothing, and a NaN in one part is in the loss") {
  const auto loss_of = [](const LogitValues& logits) {
    ClassParts c(1, {3, 20, 4}, 1, DType::f32);
    REQUIRE(logits.size() == c.logits.size());
    c.logits = logits;
    c.targets = {1};
    return run_at_offset({.op = OpKind::cross_entropy_part, .attrs = c.attrs(2)},
                         {c.part(2), c.row_targets(), c.sums()}, {{Shape{1}, DType::f64}, absent()},
                         0)[0]
        .values()[0];
  };
  LogitValues x(27, 0);
  for (size_t i = 3; i < 23; ++i) x[i] = -HUGE_VAL;
  CHECK(loss_of(x) == Approx(std::log(7.0)).epsilon(1e-7));
  for (const size_t at : {0u, 5u, 22u, 26u}) {
    LogitValues bad = x;
    bad[at] = std::nan("");
    CHECK(std::isnan(loss_of(bad)));
    bad[at] = HUGE_VAL;
    CHECK_FALSE(std::isfinite(loss_of(bad)));
  }
}

}  // namespace
}  // namespace dstrain::parity
