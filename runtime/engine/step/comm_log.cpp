#include "runtime/engine/step/comm_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <vector>

#include "runtime/core/text.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/report/text_table.h"

namespace dstrain {
namespace {

constexpr double kBitsPerByte = 8, kGiga = 1e9;

std::string milliseconds(double seconds) {
  return seconds > 0 ? fmt::format("{:.3f}", seconds * 1e3) : "-";
}

std::string gigabits(double bytes_per_second) {
  return bytes_per_second > 0 ? fmt::format("{:.2f}", bytes_per_second * kBitsPerByte / kGiga)
                              : "-";
}

}  // namespace

Bandwidth bandwidth_of(const CommRecord& record) {
  if (record.seconds <= 0) return {};
  const double rate = static_cast<double>(record.bytes) / record.seconds;
  const double others = static_cast<double>(record.ranks - 1) / record.ranks;
  const int passes = rule_of(record.op).ring_passes;
  if (passes == 0) return {rate, rate};
  return {passes * rate, passes * rate * others};
}

bool CommLog::counts(OpKind op) const {
  return config_.all_ops || std::ranges::any_of(config_.ops, [op](std::string_view name) {
           return name.starts_with(name_of(op));
         });
}

void CommLog::add(const CommRecord& record) {
  if (!counts(record.op)) return;
  Sum& sum = sums_[{record.op, record.bytes, record.ranks}];
  ++sum.count;
  sum.seconds += record.seconds;
  sum.largest = std::max(sum.largest, record.seconds);
}

std::string CommLog::table() const {
  if (sums_.empty()) return {};
  std::vector<std::vector<std::string>> rows{{"operation", "size", "count", "total ms",
                                              "average ms", "largest ms", "algbw Gbit/s",
                                              "busbw Gbit/s"}};
  for (const auto& [key, sum] : sums_) {
    const double average = sum.seconds / static_cast<double>(sum.count);
    const auto& [op, bytes, ranks] = key;
    const Bandwidth bandwidth = bandwidth_of({op, bytes, ranks, average});
    rows.push_back({std::string(name_of(op)), bytes_text(static_cast<double>(bytes)),
                    fmt::format("{}", sum.count), milliseconds(sum.seconds), milliseconds(average),
                    milliseconds(sum.largest), gigabits(bandwidth.algorithm),
                    gigabits(bandwidth.bus)});
  }
  return text_table(rows, 7);
}

std::string comm_line(const CommRecord& record, const std::string& group) {
  const Bandwidth bandwidth = bandwidth_of(record);
  return fmt::format(
      "comm op: {} | layer: {} | time (ms): {} | msg size: {} | algbw (Gbps): {} | busbw (Gbps): "
      "{}",
      name_of(record.op), group, milliseconds(record.seconds),
      bytes_text(static_cast<double>(record.bytes)), gigabits(bandwidth.algorithm),
      gigabits(bandwidth.bus));
}

}  // namespace dstrain
