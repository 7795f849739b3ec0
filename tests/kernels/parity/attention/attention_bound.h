// The largest errors of attention's results that rounding explains, one for each element.
//
// u = 2^-24 is the unit roundoff of f32, r that of the run's dtype. Operands are taken as stored, so they have no
// error.
//   score    s_ij = scale * sum_d q_id k_jd adds D products in f32. Tensor cores cut off what does not fit, so an addition may lose 2u of the
//            partial sum: 2u (D + 2) sum_d |q_id k_jd| scale. Scaling it and subtracting the row's maximum m_i (or
//            its log-sum-exp) rounds values of up to |s_ij| + |m_i| a few times: 4u of that.
//   weight   exp(s + e) = exp(s) exp(e): the absolute error of a score is a relative error of its weight,
//            E_ij = expm1(e) + 3e-6, of which the last is the exponential's own (CPU's bf16 tiles: 3e-6, CUDA: 2^-22).
//   y        is sum_j w_j (1 + e_j) x_j / sum_j w_j (1 + e_j) with x_j = v_j or what dropout makes of it. Its error is
//            sum_j w_j e_j (x_j - y) / (1 + sum_j w_j e_j): errors of weights cancel where one weight dominates, and
//            so do errors that all weights share, such as that of m_i. Weights that are rounded to the run's dtype
//            before the product add r w_j |x_j|, a sum of T terms 2u T of its terms, and the result r |y|.
//   lse      is m + log of the sum: sum_j w_j E_j, and 4u of its value.
//   backward weights are exp(s_ij - lse_i), so E_ij does not cancel. d_s = w (m d_p - delta) scale, where d_p and
//            delta are sums of D products; weights and d_s are rounded before their products.
//   softcap  tanh has a relative error of 1e-6, and its slope, at most 1, changes by at most 2 for each part of the cap that
//            a score is wrong by.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/kernels/parity/attention/attention_reference.h"
#include "tests/kernels/parity/device_limits.h"

namespace dstrain::attention_test {

class HeadBound {
 public:
  explicit HeadBound(const HeadReference& head) : head_(head), c_(head.c) {
    if (parity::device_limits().rounds_between(c_.dtype)) between_ = parity::rounding_of(c_.dtype);
  }

  // Adds the bounds of y and lse for this head. `results`: those of the reference.
  void forward(const Values& qkv, const Forward& results, Forward& bound) const {
    for (int64_t i = 0; i < c_.seq; ++i) {
      Values scores;
      const int64_t first = head_.first(i), end = head_.end(i);
      for (int64_t j = first; j < end; ++j) scores.push_back(head_.score(qkv, i, j));
      const double max = *std::max_element(scores.begin(), scores.end());
      const double lse = results.lse[head_.at_lse(i)], total = std::exp(lse - max);
      double mean = 0;
      Values weights, errors;
      for (int64_t j = first; j < end; ++j) {
        const double s = scores[static_cast<size_t>(j - first)];
        weights.push_back(std::exp(s - lse));
        errors.push_back(weight_error(qkv, i, j, std::abs(s) + std::abs(max)));
        mean += weights.back() * errors.back();
      }
      REQUIRE(mean < 0.5);
      bound.lse[head_.at_lse(i)] = mean / (1 - mean) + sum_error() + 4 * kUnit * std::abs(lse);
      for (int64_t d = 0; d < c_.head_size; ++d) {
        const double y = results.y[head_.at_y(i, d)];
        double error = 0;
        for (int64_t j = first; j < end; ++j) {
          const auto k = static_cast<size_t>(j - first);
          const double x = head_.mask(i, j) * qkv[head_.at(j, 2, d)];
          const double rounded = weights[k] * (between_.relative + sum_error());
          error += weights[k] * errors[k] * std::abs(x - y) +
                   (rounded * (1 + errors[k]) + between_.absolute / total) * std::abs(x);
        }
        bound.y[head_.at_y(i, d)] = stored(error / (1 - mean) + sum_error() * std::abs(y), y);
      }
    }
  }

  // Adds the bounds of d_qkv for this head, without the rounding of the result.
  void backward(const Values& d_y, const Values& qkv, const Values& y, const Values& lse,
                Values& bound) const {
    const double scale = c_.score_scale();
    for (int64_t i = 0; i < c_.seq; ++i) {
      const Sum delta =
          of_head([&](int64_t d) { return d_y[head_.at_y(i, d)] * y[head_.at_y(i, d)]; });
      for (int64_t j = head_.first(i); j < head_.end(i); ++j) {
        const double shift = lse[head_.at_lse(i)], s = head_.score(qkv, i, j);
        const double p = std::exp(s - shift), m = head_.mask(i, j);
        const double error = weight_error(qkv, i, j, std::abs(s) + std::abs(shift));
        const Sum d_p =
            of_head([&](int64_t d) { return d_y[head_.at_y(i, d)] * qkv[head_.at(j, 2, d)]; });
        const double rounding = between_.relative + sum_error();
        const double p_error = p * (error + rounding * (1 + error)) + between_.absolute;
        const double slope = head_.slope(s);
        const double d_s_error =
            (p_error * std::abs(m * d_p.value - delta.value) +
             (p + p_error) * (m * d_p.error + delta.error)) *
                slope * scale +
            (p + p_error) * std::abs(m * d_p.value - delta.value) * slope_error(qkv, i, j) * scale +
            between_.absolute;
        for (int64_t d = 0; d < c_.head_size; ++d) {
          bound[head_.at(i, 0, d)] += d_s_error * std::abs(qkv[head_.at(j, 1, d)]);
          bound[head_.at(j, 1, d)] += d_s_error * std::abs(qkv[head_.at(i, 0, d)]);
          bound[head_.at(j, 2, d)] += m * p_error * std::abs(d_y[head_.at_y(i, d)]);
        }
      }
    }
  }

  // Returns a bound with the rounding of the result `value` to the run's dtype.
  double stored(double error, double value) const {
    const parity::Tolerance r = parity::rounding_of(c_.dtype);
    return error * (1 + r.relative) + r.relative * std::abs(value) + r.absolute;
  }

 private:
  static constexpr double kUnit = 0x1p-24;
  // A sum of D products, and the largest error that it has in f32.
  struct Sum {
    double value = 0, error = 0;
  };
  template <class F>
  Sum of_head(const F& term) const {
    Sum sum;
    for (int64_t d = 0; d < c_.head_size; ++d) sum.value += term(d), sum.error += std::abs(term(d));
    sum.error *= 2 * kUnit * static_cast<double>(c_.head_size + 2);
    return sum;
  }
  // Returns the largest error of a sum over up to T rows of each head of queries that a head of keys serves, as a share of
  // the sum of their sizes.
  double sum_error() const { return 2 * kUnit * static_cast<double>(c_.seq * c_.group() + 2); }
  // Returns the largest relative error of a score that a limit has bent, and the largest error of the limit's slope.
  double tanh_error() const { return c_.softcap > 0 ? 1e-6 : 0; }
  double slope_error(const Values& qkv, int64_t i, int64_t j) const {
    if (c_.softcap == 0) return 0;
    const Sum products =
        of_head([&](int64_t d) { return qkv[head_.at(i, 0, d)] * qkv[head_.at(j, 1, d)]; });
    return 2 * products.error * c_.score_scale() / c_.softcap + 4 * tanh_error();
  }
  double weight_error(const Values& qkv, int64_t i, int64_t j, double sizes) const {
    const Sum products =
        of_head([&](int64_t d) { return qkv[head_.at(i, 0, d)] * qkv[head_.at(j, 1, d)]; });
    return std::expm1(products.error * c_.score_scale() + 4 * kUnit * sizes +
                      tanh_error() * sizes) +
           3e-6;
  }

  const HeadReference& head_;
  const Case& c_;
  parity::Tolerance between_;  // rounding of the operands between products
};

// Returns the bounds of y and lse. `results`: those of reference_forward.
inline Forward forward_bound(const Case& c, const Values& qkv, const Forward& results) {
  Forward bound{Values(results.y.size()), Values(results.lse.size())};
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h) {
      const HeadReference head{c, b, h};
      HeadBound(head).forward(qkv, results, bound);
    }
  return bound;
}

// Returns the bounds of d_qkv. `results`: those of reference_backward.
inline Values backward_bound(const Case& c, const Values& d_y, const Values& qkv, const Values& y,
                             const Values& lse, const Values& results) {
  Values bound(results.size());
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h) {
      const HeadReference head{c, b, h};
      HeadBound(head).backward(d_y, qkv, y, lse, bound);
    }
  const HeadReference any{c, 0, 0};
  const HeadBound last(any);
  for (size_t i = 0; i < bound.size(); ++i) bound[i] = last.stored(bound[i], results[i]);
  return bound;
}

}  // namespace dstrain::attention_test
