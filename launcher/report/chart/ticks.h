// Ticks: the values that an axis names, and how.
#pragma once

#include <string>
#include <vector>

namespace dstrain::report {

struct Tick {
  double value = 0;
  std::string label;
};

// What the values of an axis are, by which they are written.
enum class Unit { number, bytes, seconds };

// Return ticks from `low` to `high`, about as many as asked for: multiples of 1, 2 or 5 times a power of ten (of bytes a
// power of two is never named; of seconds, whole minutes, hours and days); for a logarithmic axis, whose values are
// positive, powers of ten, where there are enough of them.
std::vector<Tick> linear_ticks(double low, double high, int about, Unit unit = Unit::number);
std::vector<Tick> log_ticks(double low, double high, int about, Unit unit = Unit::number);

// Returns the shortest text that reads back as the same value, as metrics.jsonl has it; "–" for NaN.
std::string exact_text(double value);

// Returns a number with four digits for a reader: "1.973", "12.3k", "4.1M", "3e-5"; "–" for NaN.
std::string short_text(double value);

}  // namespace dstrain::report
