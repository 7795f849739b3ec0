#include "benchmarks/cuda/report.h"

#include <fmt/format.h>

#include <algorithm>

namespace dstrain::bench {

using nlohmann::json;

Timing timing_of(std::vector<double> seconds) {
  std::sort(seconds.begin(), seconds.end());
  const size_t n = seconds.size();
  const double median = n % 2 == 1 ? seconds[n / 2] : (seconds[n / 2 - 1] + seconds[n / 2]) / 2;
  return {median, seconds.front(), seconds.back(), static_cast<int>(n)};
}

double floor_seconds(const Floor& floor, const Probes& probes) {
  return std::max(floor.bytes / probes.bytes_per_second, floor.flops / probes.flops_per_second);
}

std::string bound_of(const Floor& floor, const Probes& probes) {
  return floor.bytes / probes.bytes_per_second >= floor.flops / probes.flops_per_second ? "copy"
                                                                                        : "gemm";
}

json probes_json(const Probes& probes) {
  return {{"copy_gb_per_second", probes.bytes_per_second * 1e-9},
          {"gemm_tflops", probes.flops_per_second * 1e-12}};
}

json case_json(const Case& c, const Timing& timing, const Probes& probes) {
  return {{"name", c.name},
          {"us", timing.median * 1e6},
          {"lowest_us", timing.lowest * 1e6},
          {"highest_us", timing.highest * 1e6},
          {"rounds", timing.rounds},
          {"bytes", c.floor.bytes},
          {"flops", c.floor.flops},
          {"gb_per_second", c.floor.bytes / timing.median * 1e-9},
          {"tflops", c.floor.flops / timing.median * 1e-12},
          {"bound", bound_of(c.floor, probes)},
          {"fraction", floor_seconds(c.floor, probes) / timing.median}};
}

json failure_json(const Case& c, const std::string& why) {
  return {{"name", c.name}, {"failed", why}};
}

std::string table_head() {
  return fmt::format("{:<36} {:>10} {:>9} {:>9} {:>6} {:>9}", "", "us", "GB/s", "TFLOP/s", "bound",
                     "fraction");
}

std::string row_of(const json& figure) {
  const std::string name = figure["name"];
  if (figure.contains("failed"))
    return fmt::format("{:<36} failed: {}", name, figure["failed"].get<std::string>());
  return fmt::format("{:<36} {:>10.2f} {:>9.1f} {:>9.1f} {:>6} {:>9.3f}", name,
                     figure["us"].get<double>(), figure["gb_per_second"].get<double>(),
                     figure["tflops"].get<double>(), figure["bound"].get<std::string>(),
                     figure["fraction"].get<double>());
}

}  // namespace dstrain::bench
