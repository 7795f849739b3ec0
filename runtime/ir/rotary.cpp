#include "runtime/ir/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace dstrain {
namespace {

constexpr double kTurn = 2 * std::numbers::pi;

// Frequencies whose wave is longer than the samples of pretraining allow are divided by `factor`, short ones stay, and
// those between are mixed.
double llama3_frequency(const RotaryAttrs& a, double f) {
  const double wavelength = kTurn / f;
  if (wavelength > a.original_positions / a.low_freq_factor) return f / a.factor;
  if (wavelength < a.original_positions / a.high_freq_factor) return f;
  const double share = (a.original_positions / wavelength - a.low_freq_factor) /
                       (a.high_freq_factor - a.low_freq_factor);
  return (1 - share) * f / a.factor + share * f;
}

// The pairs between which yarn goes over from frequencies that stay to those that are divided by `factor`.
struct Ramp {
  double low, high;

  explicit Ramp(const RotaryAttrs& a)
      : low(pair_of(a, a.beta_fast)), high(pair_of(a, a.beta_slow)) {
    if (a.truncate) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(a.rotated_columns() - 1));
    if (low == high) high += 0.001;
  }
  double at(double pair) const { return std::clamp((pair - low) / (high - low), 0.0, 1.0); }

 private:
  // Returns the pair that makes so many turns within the samples of pretraining.
  static double pair_of(const RotaryAttrs& a, double turns) {
    return static_cast<double>(a.rotated_columns()) *
           std::log(a.original_positions / (turns * kTurn)) / (2 * std::log(a.theta));
  }
};

// Longer samples have a larger theta.
double dynamic_theta(const RotaryAttrs& a) {
  const double length = std::max(static_cast<double>(a.seq_len), a.original_positions);
  const auto size = static_cast<double>(a.rotated_columns());
  return a.theta *
         std::pow(a.factor * length / a.original_positions - (a.factor - 1), size / (size - 2));
}

double mscale_of(double factor, double mscale) {
  return factor <= 1 ? 1 : 0.1 * mscale * std::log(factor) + 1;
}

}  // namespace

std::string_view rotary_problem(const RotaryAttrs& a) {
  const auto positive = [](double x) { return std::isfinite(x) && x > 0; };
  const int64_t columns = a.rotated_columns();
  if (a.sections != 1 && a.sections != 3) return "rows of heads have 1 or 3 sections";
  if (a.rotated < 0 || a.first_column < 0 || columns > a.head_size - a.first_column)
    return "more columns are rotated than a head has";
  if (columns <= 0 || columns % 2 != 0) return "an even number of a head's columns is rotated";
  if (columns > 2 * kMostRotaryPairs) return "at most 512 columns of a head are rotated";
  if (!positive(a.theta)) return "theta is not above 0";
  if (a.kind == RotaryKind::plain) return "";
  if (!positive(a.factor)) return "the factor of longer samples is not above 0";
  if (a.kind == RotaryKind::linear) return "";
  if (!positive(a.original_positions)) return "there are no positions of pretraining";
  if (a.kind == RotaryKind::dynamic) {
    if (a.factor < 1) return "the factor of dynamic is below 1";
    if (columns <= 2) return "dynamic rotates more than 2 columns of a head";
  }
  if (a.kind == RotaryKind::llama3 &&
      !(positive(a.low_freq_factor) && positive(a.high_freq_factor) &&
        a.low_freq_factor < a.high_freq_factor))
    return "low_freq_factor is not between 0 and high_freq_factor";
  if (a.kind == RotaryKind::yarn) {
    if (!(positive(a.beta_slow) && positive(a.beta_fast) && a.beta_slow <= a.beta_fast))
      return "beta_slow is not between 0 and beta_fast";
    if (a.theta <= 1) return "theta of yarn is not above 1";
    if (!positive(rotary_scale(a))) return "attention_factor is not above 0";
  }
  return "";
}

std::vector<double> rotary_frequencies(const RotaryAttrs& a) {
  const double theta = a.kind == RotaryKind::dynamic ? dynamic_theta(a) : a.theta;
  const int64_t columns = a.rotated_columns();
  std::vector<double> frequencies;
  for (int64_t i = 0; i < columns / 2; ++i) {
    const auto pair = static_cast<double>(i);
    double f = std::pow(theta, -2 * pair / static_cast<double>(columns));
    if (a.kind == RotaryKind::llama3) f = llama3_frequency(a, f);
    if (a.kind == RotaryKind::linear) f /= a.factor;
    if (a.kind == RotaryKind::yarn) {
      const double share = Ramp(a).at(pair);
      f = f / a.factor * share + f * (1 - share);
    }
    frequencies.push_back(f);
  }
  return frequencies;
}

double rotary_scale(const RotaryAttrs& a) {
  if (a.kind != RotaryKind::yarn) return 1;
  if (a.attention_factor != 0) return a.attention_factor;
  if (a.mscale != 0 && a.mscale_all_dim != 0)
    return mscale_of(a.factor, a.mscale) / mscale_of(a.factor, a.mscale_all_dim);
  return mscale_of(a.factor, 1);
}

RotaryTurns rotary_turns(const RotaryAttrs& attrs) {
  RotaryTurns turns;
  turns.scale = rotary_scale(attrs);
  const std::vector<double> frequencies = rotary_frequencies(attrs);
  std::ranges::transform(frequencies, turns.of_pair, [](double f) { return f / kTurn; });
  return turns;
}

}  // namespace dstrain
