// Figures of bench_cuda: a case's time compared with its lower bound on this machine, as a table row and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/cuda/cases.h"

namespace dstrain::bench {

// The measured time of one run of a case, in seconds, over a number of rounds.
struct Timing {
  double median = 0, lowest = 0, highest = 0;
  int rounds = 0;
};

// Returns the median, minimum and maximum of `seconds`, which must not be empty.
Timing timing_of(std::vector<double> seconds);

// The machine's speed: bytes per second of a large copy (reads plus writes), and FLOPs per second of a large bf16
// product.
struct Probes {
  double bytes_per_second = 0, flops_per_second = 0;
};

// Returns the lower bound of a case's time on a machine with these probes.
double floor_seconds(const Floor& floor, const Probes& probes);
// Returns which of the two probes gives that bound: "copy" or "gemm".
std::string bound_of(const Floor& floor, const Probes& probes);

nlohmann::json probes_json(const Probes& probes);
nlohmann::json case_json(const Case& c, const Timing& timing, const Probes& probes);
nlohmann::json failure_json(const Case& c, const std::string& why);

// Returns a row of the table from a result of case_json or failure_json.
std::string row_of(const nlohmann::json& figure);
std::string table_head();

}  // namespace dstrain::bench
