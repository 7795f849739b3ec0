#include "runtime/core/text.h"

#include <fmt/core.h>

#include <cmath>
#include <iterator>

namespace dstrain {

std::string bytes_text(double bytes) {
  constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  for (; bytes >= 999.5 && unit + 1 < std::size(kUnits); ++unit) bytes /= 1000;
  const int decimals = unit == 0 || bytes >= 99.95 ? 0 : bytes >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f} {}", bytes, decimals, kUnits[unit]);
}

std::string number_text(double value, std::string_view specification) {
  if (std::isnan(value)) return "nan";
  return fmt::format(fmt::runtime(fmt::format("{{:{}}}", specification)), value);
}

}  // namespace dstrain
