#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

using ColumnValues = std::vector<double>;

struct ColumnsShape {
  int64_t rows, width;  // width: columns of a block
  ColumnsAttrs attrs;

  int64_t blocks() const { return attrs.parts / attrs.copies; }
  int64_t columns() const { return attrs.sections * blocks() * width; }
  Shape whole() const { return {rows, columns()}; }
  Shape split() const { return {attrs.parts, rows, attrs.sections * width}; }

  // Calls f(i, j) for each element j of the parts and the element i of the whole rows that it is a copy of.
  template <class F>
  void for_each_copy(const F& f) const {
    size_t j = 0;
    for (int64_t part = 0; part < attrs.parts; ++part)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t section = 0; section < attrs.sections; ++section)
          for (int64_t k = 0; k < width; ++k, ++j) {
            const int64_t block = section * blocks() + part / attrs.copies;
            f(static_cast<size_t>(row * columns() + block * width + k), j);
          }
  }
};

const ColumnsShape kColumnsShapes[] = {{1, 1, {}},
                                       {3, 5, {.parts = 2}},
                                       {7, 17, {.parts = 3, .sections = 3}},
                                       {5, 1, {.parts = 4, .sections = 2}},
                                       {300, 64, {.parts = 4, .sections = 3}},
                                       {1, 3, {.parts = 3, .copies = 3}},
                                       {7, 13, {.parts = 4, .sections = 1, .copies = 2}},
                                       {5, 33, {.parts = 6, .sections = 2, .copies = 3}},
                                       {300, 48, {.parts = 8, .sections = 2, .copies = 4}}};

TEST_CASE("split_columns copies the columns of each part, and join_columns is its inverse") {
  Sample sample = sample_if_emulated(2);
  for (DType dtype : kRunTypes)
    for (const ColumnsShape& s : kColumnsShapes) {
      if (!sample.takes()) continue;
      INFO(name_of(dtype) << " rows " << s.rows << " columns " << s.columns() << " parts "
                          << s.attrs.parts << " sections " << s.attrs.sections << " copies "
                          << s.attrs.copies);
      const auto x = rounded(normal_values(s.whole().elements(), 1), dtype);
      ColumnValues expected(static_cast<size_t>(s.split().elements()));
      s.for_each_copy([&](size_t i, size_t j) { expected[j] = x[i]; });
      const auto parts = run_everywhere({OpKind::split_columns, s.attrs}, {{s.whole(), dtype, x}},
                                        {{s.split(), dtype}});
      CHECK(parts[0].values() == expected);
      if (s.attrs.copies > 1) continue;
      const auto joined = run_everywhere({OpKind::join_columns, s.attrs},
                                         {{s.split(), dtype, expected}}, {{s.whole(), dtype}});
      CHECK(joined[0].values() == x);
    }
}

// Against sums in the order of the parts, in f32, rounded once: the bits of them are the promise.
TEST_CASE("join_columns adds the copies of a column in the order of the parts") {
  Sample sample = sample_if_emulated(2);
  for (DType dtype : kRunTypes)
    for (const ColumnsShape& s : kColumnsShapes) {
      if (!sample.takes()) continue;
      if (s.attrs.copies == 1) continue;
      INFO(name_of(dtype) << " rows " << s.rows << " columns " << s.columns() << " parts "
                          << s.attrs.parts << " copies " << s.attrs.copies);
      const auto x = rounded(normal_values(s.split().elements(), 1), dtype);
      std::vector<float> sums(static_cast<size_t>(s.whole().elements()));
      s.for_each_copy([&](size_t i, size_t j) { sums[i] += static_cast<float>(x[j]); });
      const auto y = run_everywhere({OpKind::join_columns, s.attrs}, {{s.split(), dtype, x}},
                                    {{s.whole(), dtype}});
      CHECK(y[0].values() == rounded({sums.begin(), sums.end()}, dtype));
    }
}

}  // namespace
}  // namespace dstrain::parity
