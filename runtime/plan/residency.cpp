#include "runtime/plan/residency.h"

#include <algorithm>

#include "runtime/core/error.h"

namespace dstrain {

Residency residency_of(const Job& job, Place place) {
  if (place.ranks == 1) return {.grad_dtype = job.grad_dtype};
  return {.optimizer = job.zero_stage >= 1,
          .gradients = job.zero_stage >= 2 && job.reduce == ReduceMode::micro_batch,
          .parameters = job.zero_stage >= 3,
          .grad_dtype = job.grad_dtype};
}

Range owned_slice(const Unit& unit, Place place) {
  const int64_t slice = unit.elements / place.ranks;
  return {place.rank * slice, (place.rank + 1) * slice};
}

int64_t most_in_flight(const Program& program) {
  constexpr int64_t kShare = 6;
  int64_t elements = 0;
  for (const Unit& unit : program.units) elements += unit.elements;
  return elements / kShare;
}

Range common(Range a, Range b) {
  return {std::max(a.begin, b.begin), std::min(a.end, b.end)};
}

Range elements_of(const Parameter& parameter) {
  return {parameter.offset, parameter.offset + parameter.shape.elements()};
}

Range range_of(const Buffer& buffer, const Unit& unit, Place place) {
  if (buffer.partial) return buffer.partial->within;
  const int64_t n = buffer.shape.elements();
  if (n == unit.elements) return {0, n};
  const Range owned = owned_slice(unit, place);
  check(n == owned.size(), "{} holds {} elements of a unit of {}", buffer.name, n, unit.elements);
  return owned;
}

int64_t position_of(const Buffer& buffer, const Unit& unit, Place place, int64_t element) {
  if (!buffer.partial) return element - range_of(buffer, unit, place).begin;
  int64_t before = 0;
  for (const Range& range : buffer.partial->ranges) {
    if (element >= range.begin && element < range.end) return before + element - range.begin;
    before += range.size();
  }
  throw InternalError(fmt::format("{} does not hold element {}", buffer.name, element));
}

}  // namespace dstrain
