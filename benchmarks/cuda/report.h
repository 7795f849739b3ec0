// Figures of bench_cuda: a time held against the machine's probes, as a row of a table and as JSON. Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/cuda/cases.h"

namespace dstrain::bench {

struct Timing {  // seconds of one run
  double median = 0, lowest = 0, highest = 0;
  int rounds = 0;
};

// The median of `seconds`, which is not empty, and its ends.
Timing timing_of(std::vector<double> seconds);

// What the machine can do: bytes per second of a large copy, read and written ones counted, and FLOPs per
// second of a large bf16 product.
struct Probes {
  double bytes_per_second = 0, flops_per_second = 0;
};

// The least time of a case on a machine with these probes.
double floor_seconds(const Floor& floor, const Probes& probes);
// "copy" or "gemm": which of the two probes that is.
std::string bound_of(const Floor& floor, const Probes& probes);

nlohmann::json probes_json(const Probes& probes);
nlohmann::json case_json(const Case& c, const Timing& timing, const Probes& probes);
nlohmann::json failure_json(const Case& c, const std::string& why);

// A row of the table: what case_json or failure_json gave.
std::string row_of(const nlohmann::json& figure);
std::string table_head();

}  // namespace dstrain::bench
