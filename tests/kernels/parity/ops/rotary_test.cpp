#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/ops/run_op.h"

namespace dstrain::parity {
namespace {

using Values = std::vector<double>;

struct RotaryShape {
  int64_t samples, heads;
  RotaryAttrs attrs;

  int64_t rows() const { return samples * attrs.seq_len; }
  int64_t columns() const { return heads * attrs.head_size; }
  Shape shape() const { return {rows(), columns()}; }
};

const RotaryShape kRotaryShapes[] = {
    {1, 1, {.head_size = 2, .seq_len = 1}},
    {2, 3, {.head_size = 6, .seq_len = 5}},
    {3, 2, {.head_size = 64, .seq_len = 33, .theta = 500000}},
    {1, 2, {.head_size = 80, .seq_len = 17, .kind = RotaryKind::linear, .factor = 4}},
    {2,
     1,
     {.head_size = 128,
      .seq_len = 9,
      .kind = RotaryKind::llama3,
      .theta = 500000,
      .factor = 8,
      .original_positions = 4}},
    {1,
     3,
     {.head_size = 10,
      .seq_len = 40,
      .kind = RotaryKind::dynamic,
      .factor = 2,
      .original_positions = 16}},
    {2,
     2,
     {.head_size = 32,
      .seq_len = 12,
      .kind = RotaryKind::yarn,
      .factor = 4,
      .original_positions = 256}},
    {1, 1, {.head_size = 512, .seq_len = 3}},
    {2, 3, {.head_size = 22, .rotated = 6, .seq_len = 5}},
    {1, 6, {.head_size = 64, .rotated = 16, .sections = 3, .seq_len = 7, .theta = 500}},
    {2, 3, {.head_size = 20, .sections = 3, .seq_len = 4}},
    {2, 3, {.head_size = 6, .interleaved = true, .seq_len = 5}},
    {1, 2, {.head_size = 22, .rotated = 14, .first_column = 5, .interleaved = true, .seq_len = 9}},
    {2, 2, {.head_size = 48, .rotated = 16, .first_column = 32, .interleaved = true, .seq_len = 5}},
    {1, 2, {.head_size = 26, .rotated = 12, .first_column = 8, .seq_len = 6}}};

// The pairs of every rotated head, rotated by position * frequency, or back; in doubles. documents: of each row, the
// row of its sample at which its document begins, or none.
Values rotation_of(const Values& x, const RotaryShape& s, bool back = false,
                   const Values& documents = {}) {
  const Values frequencies = rotary_frequencies(s.attrs);
  const double scale = rotary_scale(s.attrs);
  const int64_t half = s.attrs.rotated_columns() / 2;
  Values y(x);
  for (int64_t row = 0; row < s.rows(); ++row)
    for (int64_t head = 0; head < s.attrs.rotated_heads(s.heads); ++head)
      for (int64_t i = 0; i < half; ++i) {
        const int64_t begin_of_head =
            row * s.columns() + head * s.attrs.head_size + s.attrs.first_column;
        const bool neighbours = s.attrs.interleaved;
        const auto a = static_cast<size_t>(begin_of_head + (neighbours ? 2 * i : i)),
                   b = a + static_cast<size_t>(neighbours ? 1 : half);
        const double begin = documents.empty() ? 0 : documents[static_cast<size_t>(row)];
        const double angle = (static_cast<double>(row % s.attrs.seq_len) - begin) *
                             frequencies[static_cast<size_t>(i)] * (back ? -1 : 1);
        y[a] = scale * (x[a] * std::cos(angle) - x[b] * std::sin(angle));
        y[b] = scale * (x[b] * std::cos(angle) + x[a] * std::sin(angle));
      }
  return y;
}

TEST_CASE("rotary rotates the pairs of each head by its row's position, and rotary_grad back") {
  Sample sample = sample_if_emulated(2);
  for (DType dtype : kRunTypes)
    for (const RotaryShape& s : kRotaryShapes) {
      if (!sample.takes()) continue;
      INFO(name_of(dtype) << " B " << s.samples << " H " << s.heads << " D " << s.attrs.head_size
                          << " T " << s.attrs.seq_len);
      const auto x = rounded(normal_values(s.rows() * s.columns(), 1), dtype);
      const std::vector<Operand> in{{s.shape(), dtype, x}}, out{{s.shape(), dtype}};
      const auto y = run_everywhere({OpKind::rotary, s.attrs}, in, out);
      require_close("y", y[0].values(), rotation_of(x, s), tolerance_of(dtype));
      const Call back{OpKind::rotary_grad, s.attrs};
      const auto d_x = run_everywhere(back, in, out);
      require_close("d_x", d_x[0].values(), rotation_of(x, s, true), tolerance_of(dtype));
      const auto in_place = run_everywhere(back, in, {{s.shape(), dtype, {}, 0}});
      require_same_bits("in place", in_place[0], d_x[0]);
    }
}

TEST_CASE("rotary and rotary_grad count positions from where a row's document begins") {
  Sample sample = sample_if_emulated(2);
  for (DType dtype : kRunTypes)
    for (const RotaryShape& s : kRotaryShapes) {
      if (!sample.takes()) continue;
      INFO(name_of(dtype) << " B " << s.samples << " H " << s.heads << " D " << s.attrs.head_size
                          << " T " << s.attrs.seq_len);
      const Values documents = documents_of_samples(s.samples, s.attrs.seq_len);
      const auto x = rounded(normal_values(s.rows() * s.columns(), 1), dtype);
      const Operand begins{Shape{s.rows()}, DType::i32, documents};
      const std::vector<Operand> in{{s.shape(), dtype, x}, begins}, out{{s.shape(), dtype}};
      const auto y = run_everywhere({OpKind::rotary, s.attrs}, in, out);
      require_close("y", y[0].values(), rotation_of(x, s, false, documents), tolerance_of(dtype));
      const Call back{OpKind::rotary_grad, s.attrs};
      const auto d_x = run_everywhere(back, in, out);
      require_close("d_x", d_x[0].values(), rotation_of(x, s, true, documents),
                    tolerance_of(dtype));
      const auto in_place = run_everywhere(back, in, {{s.shape(), dtype, {}, 0}});
      require_same_bits("in place", in_place[0], d_x[0]);
    }
}

TEST_CASE("rotary gives a document the bits of a sample of its own, at any place") {
  const RotaryShape two{1, 3, {.head_size = 64, .seq_len = 30}};
  RotaryShape own = two;
  own.attrs.seq_len = 17;
  for (DType dtype : kRunTypes) {
    const auto x = rounded(normal_values(two.rows() * two.columns(), 1), dtype);
    Values documents(13, 0);
    documents.resize(30, 13);
    const auto y = run_everywhere({OpKind::rotary, two.attrs},
                                  {{two.shape(), dtype, x}, {Shape{30}, DType::i32, documents}},
                                  {{two.shape(), dtype}});
    const auto alone =
        run_everywhere({OpKind::rotary, own.attrs},
                       {{own.shape(), dtype, Values(x.begin() + 13 * two.columns(), x.end())}},
                       {{own.shape(), dtype}});
    const Values all = y[0].values();
    CHECK(Values(all.begin() + 13 * two.columns(), all.end()) == alone[0].values());
  }
}

TEST_CASE("rotary_grad is the gradient of rotary") {
  for (const RotaryShape& s : kRotaryShapes) {
    const int64_t n = s.rows() * s.columns();
    const auto x = rounded(normal_values(n, 1), DType::f32);
    const auto d_y = rounded(normal_values(n, 2), DType::f32);
    const auto d_x = run_at_offset({OpKind::rotary_grad, s.attrs}, {{s.shape(), DType::f32, d_y}},
                                   {{s.shape(), DType::f32}}, 0);
    const Values direction = normal_values(n, 3);
    const double slope = directional_derivative(
        [&](const Values& v) { return dot(d_y, rotation_of(v, s)); }, x, direction);
    CHECK(dot(d_x[0].values(), direction) == Approx(slope).epsilon(1e-5).margin(1e-5));
  }
}

TEST_CASE("angles of far positions are as exact as those of near ones") {
  const RotaryShape s{1, 1, {.head_size = 4, .seq_len = 8000}};
  const auto x = rounded(normal_values(s.rows() * s.columns(), 1), DType::f32);
  const auto y = run_at_offset({OpKind::rotary, s.attrs}, {{s.shape(), DType::f32, x}},
                               {{s.shape(), DType::f32}}, 0);
  require_close("y", y[0].values(), rotation_of(x, s), {1e-6, 5e-7});
}

}  // namespace
}  // namespace dstrain::parity
