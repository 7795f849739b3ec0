// Operands of an attention case and the calls of its two kernels. Test support only.
#pragma once

#include <fmt/core.h>

#include "tests/kernels/attention/oracle.h"
#include "tests/kernels/limits.h"
#include "tests/kernels/parity.h"

namespace dstrain::attention_test {

using parity::Guarded;

inline std::string describe(const Case& c) {
  return fmt::format("{} B={} T={} heads={} D={} dropout={}", name_of(c.dtype), c.batch, c.seq,
                     c.heads, c.head_size, c.dropout);
}

struct Fixture {
  Case c;
  Guarded qkv, y, lse, d_y, d_qkv;

  explicit Fixture(const Case& c_, double query_std = 1, int64_t offset = 0)
      : c(c_),
        qkv({c.rows(), 3 * c.channels()}, c.dtype, offset),
        y({c.rows(), c.channels()}, c.dtype, offset),
        lse({c.batch, c.heads, c.seq}, DType::f32),
        d_y({c.rows(), c.channels()}, c.dtype, offset),
        d_qkv({c.rows(), 3 * c.channels()}, c.dtype, offset) {
    Values values = parity::normal_values(qkv.elements(), c.seed + 1);
    for (size_t i = 0; i < values.size(); ++i) {
      if (static_cast<int64_t>(i) % (3 * c.channels()) < c.channels()) values[i] *= query_std;
    }
    qkv.set(values);
    d_y.set(parity::normal_values(d_y.elements(), c.seed + 2));
  }

  // What forward leaves for backward, from the oracle, rounded as stored.
  void set_saved() {
    const Forward f = oracle_forward(c, qkv.values());
    y.set(f.y);
    lse.set(f.lse);
  }

  parity::Call call(OpKind op, int threads, const StepState& state) const {
    parity::Call k{.op = op, .threads = threads, .state = &state};
    k.attrs =
        AttentionAttrs{.dropout = c.dropout, .site = c.site, .heads = c.heads, .seq_len = c.seq};
    k.sample_offset = 3;
    return k;
  }
  StepState state() const {
    StepState s;
    s.seed = c.seed;
    s.first_sample = static_cast<int64_t>(c.first_sample) - 3;
    return s;
  }
  void run_forward(int threads = 2) {
    const StepState s = state();
    parity::run_kernel(parity::backend(), call(OpKind::attention, threads, s), {&qkv}, {&y, &lse});
  }
  void run_backward(int threads = 2) {
    const StepState s = state();
    parity::run_kernel(parity::backend(), call(OpKind::attention_grad, threads, s),
                       {&d_y, &qkv, &y, &lse}, {&d_qkv});
  }
};

inline double largest(const Values& values) {
  double m = 0;
  for (double v : values) m = std::max(m, std::abs(v));
  return m;
}

// Of the forward pass, all pairs of rows.
inline int64_t multiply_adds(const Case& c) {
  return c.batch * c.heads * c.seq * c.seq * c.head_size;
}

// The longest of seq, seq/2, ... whose pairs of rows the backend has time for.
inline int64_t affordable(int64_t seq, int64_t per_pair) {
  while (seq * seq * per_pair > parity::limits().budget) seq /= 2;
  return seq;
}

inline const std::vector<Case>& shapes() {
  static const std::vector<Case> cases = [] {
    std::vector<Case> list;
    const auto add = [&](int64_t batch, int64_t seq, int64_t heads, int64_t head_size) {
      Case c;
      c.batch = batch, c.seq = seq, c.heads = heads, c.head_size = head_size;
      if (multiply_adds(c) <= parity::limits().budget) list.push_back(c);
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
    return list;
  }();
  return cases;
}

}  // namespace dstrain::attention_test
