#include "launcher/report/chart/ticks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

namespace dstrain::report {
namespace {

constexpr std::array<std::pair<double, std::string_view>, 5> kThousands = {
    {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};

// Returns the step of about so many ticks: 1, 2 or 5 times a power of ten.
double decimal_step(double range, int about) {
  const double rough = range / std::max(about, 1);
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (rough <= factor * power * 1.0001) return factor * power;
  return 10 * power;
}

double seconds_step(double range, int about) {
  const double rough = range / std::max(about, 1);
  if (rough < 1) return decimal_step(range, about);
  for (const double step : {1., 2., 5., 10., 20., 30., 60., 120., 300., 600., 1200., 1800., 3600.,
                            7200., 14400., 21600., 43200., 86400.})
    if (rough <= step) return step;
  return 86400 * decimal_step(range / 86400, about);
}

// Returns "1.5" and not "1.50": a number with at most so many decimals.
std::string plain_text(double value, int decimals) {
  std::string text = fmt::format("{:.{}f}", value, std::clamp(decimals, 0, 12));
  if (text.find('.') != std::string::npos) {
    text.erase(text.find_last_not_of('0') + 1);
    if (text.ends_with('.')) text.pop_back();
  }
  return text == "-0" ? "0" : text;
}

// Returns "3e-5" with at most so many digits behind the point.
std::string exponent_text(double value, int decimals) {
  const int exponent = static_cast<int>(std::floor(std::log10(std::abs(value)) + 1e-9));
  return fmt::format("{}e{}", plain_text(value / std::pow(10, exponent), decimals), exponent);
}

// Returns the label of a value among ticks `step` apart, of which the largest has the magnitude `largest`.
std::string number_label(double value, double step, double largest) {
  if (std::abs(value) < step / 1e6) return "0";
  if (largest >= 1e18 || largest < 1e-3) return exponent_text(value, 3);
  for (const auto& [size, mark] : kThousands)
    if (largest >= 10 * size || (largest >= size && step >= size / 10))
      return fmt::format(
          "{}{}", plain_text(value / size, static_cast<int>(std::ceil(-std::log10(step / size)))),
          mark);
  return plain_text(value, static_cast<int>(std::ceil(-std::log10(step) - 1e-9)));
}

std::string bytes_label(double value, double largest) {
  if (value == 0) return "0";
  for (const auto& [size, mark] : kThousands)
    if (largest >= size) return fmt::format("{} {}B", plain_text(value / size, 3), mark);
  return plain_text(value, 0) + " B";
}

std::string seconds_label(double value, double step) {
  if (value == 0) return "0";
  if (step < 1) return plain_text(value, static_cast<int>(std::ceil(-std::log10(step)))) + " s";
  const auto s = static_cast<int64_t>(std::llround(value));
  if (s >= 86400 && s % 3600 == 0)
    return s % 86400 == 0 ? fmt::format("{} d", s / 86400)
                          : fmt::format("{} d {} h", s / 86400, s % 86400 / 3600);
  if (s >= 3600 && s % 60 == 0)
    return s % 3600 == 0 ? fmt::format("{} h", s / 3600)
                         : fmt::format("{}:{:02} h", s / 3600, s % 3600 / 60);
  if (s >= 60)
    return s % 60 == 0 ? fmt::format("{} min", s / 60)
                       : fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{} s", s);
}

std::string label_of(double value, double step, double largest, Unit unit) {
  switch (unit) {
    case Unit::bytes:
      return bytes_label(value, largest);
    case Unit::seconds:
      return seconds_label(value, step);
    case Unit::number:
      break;
  }
  return number_label(value, step, largest);
}

}  // namespace

std::vector<Tick> linear_ticks(double low, double high, int about, Unit unit) {
  if (!(high > low) || !std::isfinite(high - low)) return {};
  const double step =
      unit == Unit::seconds ? seconds_step(high - low, about) : decimal_step(high - low, about);
  const double largest = std::max(std::abs(low), std::abs(high));
  if (!(step > 0) || largest / step > 1e12) return {};  // too near to each other to be told apart
  std::vector<Tick> ticks;
  for (double number = std::ceil(low / step - 1e-9); number * step <= high + step * 1e-9; ++number)
    ticks.push_back({number * step, label_of(number * step, step, largest, unit)});
  return ticks;
}

std::vector<Tick> log_ticks(double low, double high, int about, Unit unit) {
  if (!(low > 0) || !(high > low) || !std::isfinite(high)) return {};
  const int first = static_cast<int>(std::ceil(std::log10(low) - 1e-9));
  const int last = static_cast<int>(std::floor(std::log10(high) + 1e-9));
  if (last - first < 1 && high / low < 4) return linear_ticks(low, high, about, unit);
  const int every = std::max(1, (last - first + 1 + about - 1) / about);
  std::vector<double> factors = {1};
  if (last - first + 1 <= about / 2) factors = {1, 2, 5};
  // All labels have exponents where one needs it.
  const bool small = low < 1e-3 && high < 1 && unit == Unit::number;
  std::vector<Tick> ticks;
  for (int power = first - 1; power <= last; ++power) {
    if ((power - first) % every != 0) continue;
    for (const double factor : factors) {
      const double value = factor * std::pow(10, power);
      if (value < low * 0.9999999 || value > high * 1.0000001) continue;
      ticks.push_back({value, label_of(value, std::pow(10, power), small ? low : value, unit)});
    }
  }
  return ticks;
}

std::string exact_text(double value) {
  if (std::isnan(value)) return "–";
  // metrics.jsonl has bytes and tokens as integers.
  if (std::abs(value) < 0x1p53 && value == std::trunc(value)) return fmt::format("{:.0f}", value);
  std::array<char, 40> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

std::string short_text(double value) {
  if (std::isnan(value)) return "–";
  const double size = std::abs(value);
  if (value == 0) return "0";
  if (size < 1e-3 || size >= 1e18 || std::isinf(value))
    return std::isinf(value) ? fmt::format("{}", value) : exponent_text(value, 3);
  for (const auto& [unit, mark] : kThousands)
    if (size >= 10 * unit || (unit > 1e3 && size >= unit)) {
      const double shown = value / unit;
      return fmt::format("{}{}", plain_text(shown, size >= 100 * unit ? 1 : 2), mark);
    }
  const int digits_before = static_cast<int>(std::floor(std::log10(size))) + 1;
  return plain_text(value, std::max(0, 4 - std::max(digits_before, 0)));
}

}  // namespace dstrain::report
