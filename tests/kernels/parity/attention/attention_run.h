// The operands of an attention case, the runs of its two kernels, and the cases that both passes are tested with.
#pragma once

#include <fmt/core.h>

#include <optional>

#include "tests/kernels/parity/attention/attention_reference.h"
#include "tests/kernels/parity/device_limits.h"
#include "tests/kernels/parity/device_sample.h"
#include "tests/kernels/parity/run_kernel.h"

namespace dstrain::attention_test {

using parity::Guarded;

inline std::string describe(const Case& c) {
  std::string documents;  // where they begin
  for (size_t row = 0; row < c.documents.size(); ++row)
    if (c.documents[row] == static_cast<int64_t>(row) % c.seq && documents.size() < 60)
      documents += fmt::format(" {}", c.documents[row]);
  return fmt::format(
      "{} B={} T={} {} heads={} from {} kv_heads={} D={} window={} scale={} softcap={} dropout={} "
      "{} "
      "documents:{}",
      name_of(c.dtype), c.batch, c.seq, c.causal ? "causal" : "all keys", c.heads, c.first_head,
      c.kv_heads, c.head_size, c.window, c.scale, c.softcap, c.dropout,
      c.packed ? "packed" : "separate", documents);
}

// q, k and v, or their gradients: one operand or three. Its values are rows of all three, as the reference has them.
class HeadOperands {
 public:
  HeadOperands(const Case& c, int64_t offset) : rows_(c.rows()), columns_(c.columns()) {
    const int64_t k = c.kv_channels();
    for (int64_t columns : c.packed ? std::vector{c.columns()} : std::vector{c.channels(), k, k})
      parts_.emplace_back(Shape{c.rows(), columns}, c.dtype, offset);
  }

  int64_t elements() const { return rows_ * columns_; }
  std::vector<Guarded>& parts() { return parts_; }
  const std::vector<Guarded>& parts() const { return parts_; }

  void set(const Values& values) {
    REQUIRE(static_cast<int64_t>(values.size()) == elements());
    auto first = values.begin();
    for (Guarded& part : parts_) {
      const int64_t columns = part.shape()[1];
      Values mine;
      for (int64_t r = 0; r < rows_; ++r)
        mine.insert(mine.end(), first + r * columns_, first + r * columns_ + columns);
      part.set(mine);
      first += columns;
    }
  }
  Values values() const {
    Values all(static_cast<size_t>(elements()));
    auto first = all.begin();
    for (const Guarded& part : parts_) {
      const int64_t columns = part.shape()[1];
      const Values mine = part.values();
      for (int64_t r = 0; r < rows_; ++r)
        std::copy_n(mine.begin() + r * columns, columns, first + r * columns_);
      first += columns;
    }
    return all;
  }

 private:
  int64_t rows_, columns_;
  std::vector<Guarded> parts_;
};

inline void require_same_bits(const char* what, const HeadOperands& a, const HeadOperands& b) {
  REQUIRE(a.parts().size() == b.parts().size());
  for (size_t i = 0; i < a.parts().size(); ++i)
    parity::require_same_bits(what, a.parts()[i], b.parts()[i]);
}

struct AttentionRun {
  Case c;
  HeadOperands qkv, d_qkv;
  Guarded y, lse, d_y;
  std::optional<Guarded> documents{};

  explicit AttentionRun(const Case& of, double query_std = 1, int64_t offset = 0)
      : c(of),
        qkv(c, offset),
        d_qkv(c, offset),
        y({c.rows(), c.channels()}, c.dtype, offset),
        lse({c.batch, c.heads, c.seq}, DType::f32),
        d_y({c.rows(), c.channels()}, c.dtype, offset) {
    Values values = parity::normal_values(qkv.elements(), c.seed + 1);
    for (size_t i = 0; i < values.size(); ++i) {
      if (static_cast<int64_t>(i) % c.columns() < c.channels()) values[i] *= query_std;
    }
    qkv.set(values);
    d_y.set(parity::normal_values(d_y.elements(), c.seed + 2));
    if (!c.documents.empty())
      documents.emplace(Shape{c.rows()}, DType::i32, Values(c.documents.begin(), c.documents.end()),
                        offset);
  }

  // Sets y and lse to the reference's results, rounded as stored.
  void set_forward_results() {
    const Forward f = reference_forward(c, qkv.values());
    y.set(f.y);
    lse.set(f.lse);
  }

  parity::Call call(OpKind op, int threads, const StepState& state) const {
    parity::Call k{.op = op, .threads = threads, .state = &state};
    k.attrs = AttentionAttrs{.dropout = c.dropout,
                             .site = c.site,
                             .heads = c.heads,
                             .seq_len = c.seq,
                             .kv_heads = c.kv_heads,
                             .window = c.window,
                             .causal = c.causal,
                             .scale = c.scale,
                             .softcap = c.softcap,
                             .first_head = c.first_head};
    k.sample_offset = 3;
    return k;
  }
  StepState state() const {
    StepState s;
    s.seed = c.seed;
    s.first_sample = static_cast<int64_t>(c.first_sample) - 3;
    return s;
  }
  void run_forward(int threads = 2, const parity::TestDevice& on = parity::test_device()) {
    const StepState s = state();
    std::vector<const Guarded*> in;
    for (const Guarded& part : qkv.parts()) in.push_back(&part);
    if (documents) in.push_back(&*documents);
    parity::run_kernel(on, call(OpKind::attention, threads, s), in, {&y, &lse});
  }
  void run_backward(int threads = 2, const parity::TestDevice& on = parity::test_device()) {
    const StepState s = state();
    std::vector<const Guarded*> in{&d_y};
    std::vector<Guarded*> out;
    for (const Guarded& part : qkv.parts()) in.push_back(&part);
    in.insert(in.end(), {&y, &lse});
    if (documents) in.push_back(&*documents);
    for (Guarded& part : d_qkv.parts()) out.push_back(&part);
    parity::run_kernel(on, call(OpKind::attention_grad, threads, s), in, out);
  }
};

// Compares the gradient of a case with finite differences of the reference, in some random directions.
inline void require_derivative(const Case& c) {
  INFO(describe(c));
  AttentionRun f(c);
  f.run_forward();
  f.run_backward();
  const Values d_y = f.d_y.values();
  const auto loss = [&](const Values& qkv) {
    return parity::dot(d_y, reference_forward(c, qkv).y);
  };
  for (uint64_t seed = 0; seed < 4; ++seed) {
    const Values direction = parity::normal_values(f.qkv.elements(), 77 + seed);
    const double expected = parity::directional_derivative(loss, f.qkv.values(), direction);
    const double got = parity::dot(f.d_qkv.values(), direction);
    REQUIRE(got == Approx(expected).epsilon(1e-5).margin(1e-5 * std::sqrt(direction.size())));
  }
}

inline double largest(const Values& values) {
  double m = 0;
  for (double v : values) m = std::max(m, std::abs(v));
  return m;
}

// Returns the multiply-adds of the forward pass with all pairs of rows.
inline int64_t multiply_adds(const Case& c) {
  return c.batch * c.heads * c.seq * c.seq * c.head_size;
}

// Returns the largest of seq, seq/2, ... that is within the device's budget.
inline int64_t affordable(int64_t seq, int64_t per_pair) {
  while (seq * seq * per_pair > parity::device_limits().budget) seq /= 2;
  return seq;
}

// Returns the sample of the longest lists of cases. The CPU runs them with several instruction sets.
inline Sample sample_of_attention() {
  return parity::test_device().is_emulated() ? parity::sample_if_emulated(4) : Sample(2);
}

inline const std::vector<Case>& shapes() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> list;
    const auto add = [&](int64_t batch, int64_t seq, int64_t heads, int64_t head_size) {
      Case c;
      c.batch = batch, c.seq = seq, c.heads = heads, c.head_size = head_size;
      if (multiply_adds(c) <= parity::device_limits().budget) list.push_back(c);
    };
    add(1, 1, 1, 1);
    add(2, 1, 3, 8);
    add(3, 7, 1, 24);
    add(1, 31, 2, 64);
    add(1, 33, 2, 33);
    add(2, 64, 2, 64);
    add(1, 65, 2, 80);
    add(1, 65, 5, 80);
    add(1, 97, 1, 128);
    add(1, 97, 3, 128);
    add(2, 130, 1, 1);
    add(1, 130, 1, 64);
    add(1, 40, 2, 136);
    add(1, 256, 2, 64);
    add(1, 257, 1, 64);
    add(1, 331, 2, 40);
    add(1, 520, 1, 16);
    // More tiles than a GPU's rings of copied tiles have stages.
    add(2, 388, 1, 64);
    add(1, 452, 1, 128);
    return list;
  }();
  return cases;
}

// Every shape in every dtype, without dropout.
inline std::vector<Case> plain_cases() {
  std::vector<Case> cases;
  for (DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (Case c : shapes()) {
      c.dtype = dtype;
      cases.push_back(c);
    }
  return cases;
}

// The same with dropout, of the first heads of a model or of later ones, and with a sample number of more than 32 bits.
inline std::vector<Case> dropout_cases() {
  std::vector<Case> cases = plain_cases();
  for (Case& c : cases) {
    c.dropout = c.seq % 2 == 0 ? 0.1f : 0.5f;
    c.first_sample = (uint64_t{1} << 33) + 5;
    c.first_head = c.seq % 4 == 1 ? 0 : c.head_size % 7;
  }
  return cases;
}

// A head size that is no multiple of a vector, in every dtype.
inline std::vector<Case> odd_head_cases() {
  std::vector<Case> cases(3);
  for (Case& c : cases) c.seq = 70, c.heads = 2, c.head_size = 20, c.dropout = 0.1f;
  cases[1].dtype = DType::bf16;
  cases[2].dtype = DType::f16;
  return cases;
}

// The tolerance of results in f32 with scores of ordinary size: the rounding of a sum of up to T terms, of which
// `scale` is the largest. It is closer than attention_bound.h, which takes every rounding at its worst.
inline parity::Tolerance f32_tolerance(double scale, double f32_error) {
  return {1e-5, f32_error * scale};
}

}  // namespace dstrain::attention_test
