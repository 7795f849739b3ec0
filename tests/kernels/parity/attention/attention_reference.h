// Reference implementation of attention in double precision, from its definition: whole T x T matrices, and one
// element of the dropout mask at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "runtime/core/philox.h"
#include "tests/kernels/parity/run_kernel.h"

namespace dstrain::attention_test {

// The sizes, the dtype and the choices of one test of attention.
struct Case {
  DType dtype = DType::f32;
  int64_t batch = 1, seq = 1, heads = 1, head_size = 1;
  int64_t kv_heads = 0;    // heads of keys and values; 0: as many as of queries
  int64_t first_head = 0;  // the model's head that head 0 of queries is
  int64_t window = 0;      // the keys that a query sees, with its own; 0: all until its own
  bool causal = true;      // false: a query sees all keys
  double scale = 0;        // of the scores; 0: 1 / sqrt(head_size)
  double softcap = 0;      // the limit of the scores; 0: none
  // (batch * seq) or empty: of each row, the row of its sample at which its document begins.
  std::vector<int64_t> documents = {};
  bool packed = true;  // q, k and v are one operand
  float dropout = 0;
  uint64_t seed = 1234;
  uint64_t first_sample = 0;
  uint32_t site = 5;

  int64_t channels() const { return heads * head_size; }
  int64_t group() const { return kv_heads > 0 ? heads / kv_heads : 1; }
  int64_t kv_channels() const { return channels() / group(); }
  int64_t columns() const { return channels() + 2 * kv_channels(); }  // of q, k and v together
  double score_scale() const {
    return scale > 0 ? scale : 1 / std::sqrt(static_cast<double>(head_size));
  }
  int64_t rows() const { return batch * seq; }
};

using Values = std::vector<double>;

// The results of the forward pass: the outputs, and the log-sum-exp of the scores of each row.
struct Forward {
  Values y, lse;
};

// What a wrong kernel does: tests of the tolerance compute with it.
struct Fault {
  double scale = 1;          // of the scores
  int64_t later_keys = 0;    // keys after the last that a query sees, of those that there are
  int64_t earlier_keys = 0;  // keys before its window, or its document, that a query sees
};

// The reference computation for one head of queries of one sample of a case, which must outlive it. q, k and v, and their
// gradients, are rows of all three, one after the other, however the kernel has them.
struct HeadReference {
  const Case& c;
  int64_t sample, head;
  Fault fault = {};

  size_t at(int64_t row, int64_t part, int64_t d) const {  // part 0, 1, 2: q, k, v
    const int64_t column =
        part == 0 ? head * c.head_size
                  : c.channels() + (part - 1) * c.kv_channels() + head / c.group() * c.head_size;
    return static_cast<size_t>((sample * c.seq + row) * c.columns() + column + d);
  }
  size_t at_y(int64_t row, int64_t d) const {
    return static_cast<size_t>((sample * c.seq + row) * c.channels() + head * c.head_size + d);
  }
  size_t at_lse(int64_t row) const {
    return static_cast<size_t>((sample * c.heads + head) * c.seq + row);
  }
  double score(const Values& qkv, int64_t i, int64_t j) const {
    double s = 0;
    for (int64_t d = 0; d < c.head_size; ++d) s += qkv[at(i, 0, d)] * qkv[at(j, 1, d)];
    s *= fault.scale * c.score_scale();
    return c.softcap > 0 ? c.softcap * std::tanh(s / c.softcap) : s;
  }
  // Returns the slope of the limit at a score that it has bent.
  double slope(double score) const {
    return c.softcap > 0 ? 1 - score * score / (c.softcap * c.softcap) : 1;
  }
  // Returns the first key that query i sees, and the end of the keys that it sees.
  int64_t first(int64_t i) const {
    int64_t first = c.window > 0 ? std::max<int64_t>(i + 1 - c.window - fault.earlier_keys, 0) : 0;
    if (!c.documents.empty())
      first = std::max(first,
                       c.documents[static_cast<size_t>(sample * c.seq + i)] - fault.earlier_keys);
    return first;
  }
  int64_t end(int64_t i) const {
    return std::min((c.causal ? i + 1 : c.seq) + fault.later_keys, c.seq);
  }
  // Returns 0 for a dropped weight, else the scale of kept weights.
  double mask(int64_t i, int64_t j) const {
    const DropoutRule rule(c.dropout);
    if (rule.threshold == 0) return 1;
    const PhiloxKey key = stream_key(c.seed, kDropoutStream + c.site);
    const auto element = static_cast<uint64_t>(((c.first_head + head) * c.seq + i) * c.seq + j);
    const uint64_t s = c.first_sample + static_cast<uint64_t>(sample);
    return dropout_bits(key, s, element) >= rule.threshold ? double{rule.scale} : 0.0;
  }

  void forward(const Values& qkv, Forward& out) const {
    for (int64_t i = 0; i < c.seq; ++i) {
      Values scores;
      for (int64_t j = first(i); j < end(i); ++j) scores.push_back(score(qkv, i, j));
      double max = scores[0], total = 0;
      for (double s : scores) max = std::max(max, s);
      for (double s : scores) total += std::exp(s - max);
      out.lse[at_lse(i)] = max + std::log(total);
      for (int64_t j = first(i); j < end(i); ++j) {
        const double s = scores[static_cast<size_t>(j - first(i))];
        const double w = mask(i, j) * std::exp(s - out.lse[at_lse(i)]);
        for (int64_t d = 0; d < c.head_size; ++d) out.y[at_y(i, d)] += w * qkv[at(j, 2, d)];
      }
    }
  }

  void backward(const Values& d_y, const Values& qkv, const Values& y, const Values& lse,
                Values& d_qkv) const {
    const double scale = fault.scale * c.score_scale();
    for (int64_t i = 0; i < c.seq; ++i) {
      double delta = 0;
      for (int64_t d = 0; d < c.head_size; ++d) delta += d_y[at_y(i, d)] * y[at_y(i, d)];
      for (int64_t j = first(i); j < end(i); ++j) {
        const double s = score(qkv, i, j), p = std::exp(s - lse[at_lse(i)]), m = mask(i, j);
        double dp = 0;
        for (int64_t d = 0; d < c.head_size; ++d) dp += d_y[at_y(i, d)] * qkv[at(j, 2, d)];
        const double ds = p * (m * dp - delta) * slope(s) * scale;
        for (int64_t d = 0; d < c.head_size; ++d) {
          d_qkv[at(i, 0, d)] += ds * qkv[at(j, 1, d)];
          d_qkv[at(j, 1, d)] += ds * qkv[at(i, 0, d)];
          d_qkv[at(j, 2, d)] += m * p * d_y[at_y(i, d)];
        }
      }
    }
  }
};

inline Forward reference_forward(const Case& c, const Values& qkv, const Fault& fault = {}) {
  Forward out{Values(static_cast<size_t>(c.rows() * c.channels())),
              Values(static_cast<size_t>(c.batch * c.heads * c.seq))};
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h) HeadReference{c, b, h, fault}.forward(qkv, out);
  return out;
}

// Computes from y and lse as stored, as the op does.
inline Values reference_backward(const Case& c, const Values& d_y, const Values& qkv,
                                 const Values& y, const Values& lse, const Fault& fault = {}) {
  Values d_qkv(qkv.size());
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      HeadReference{c, b, h, fault}.backward(d_y, qkv, y, lse, d_qkv);
  return d_qkv;
}

}  // namespace dstrain::attention_test
