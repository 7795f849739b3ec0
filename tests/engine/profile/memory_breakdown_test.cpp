// The table of memory_breakdown, made up and of a real rank.
#include "runtime/engine/profile/memory_breakdown.h"

#include <catch2/catch.hpp>
#include <fstream>
#include <string>

#include "tests/engine/test_rank.h"
#include "tests/support/models.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

MemoryTable made_up_table(int64_t parameters, int64_t activations, int64_t host) {
  MemoryTable table;
  table.at_peak[static_cast<size_t>(MemoryClass::parameters)] = parameters;
  table.at_peak[static_cast<size_t>(MemoryClass::activations)] = activations;
  table.host_at_peak[static_cast<size_t>(MemoryClass::optimizer)] = host;
  table.region_bytes[static_cast<size_t>(Region::persistent)] = parameters;
  table.region_bytes[static_cast<size_t>(Region::transient)] = activations;
  table.region_bytes[static_cast<size_t>(Region::host)] = host;
  return table;
}

TEST_CASE("memory breakdown: the planned memory of two ranks by purpose") {
  MemoryBreakdown memory{.largest = made_up_table(3'000'000, 500'000, 0),
                         .smallest = made_up_table(2'000'000, 250'000, 0)};
  CHECK(memory_breakdown_text(memory) ==
        "memory of a rank       planned: most    least\n"
        "device: parameters           3.00 MB  2.00 MB\n"
        "device: gradients                0 B      0 B\n"
        "device: optimizer                0 B      0 B\n"
        "device: activations           500 kB   250 kB\n"
        "device: communication            0 B      0 B\n"
        "device: packed                   0 B      0 B\n"
        "device: workspace                0 B      0 B\n"
        "device: total                3.50 MB  2.25 MB\n");
}

TEST_CASE("memory breakdown: what is measured stands beside what is planned") {
  MemoryBreakdown memory{.largest = made_up_table(3'000'000, 500'000, 7'000'000),
                         .smallest = made_up_table(2'000'000, 250'000, 7'000'000)};
  memory.measured =
      MemoryBreakdown::Extremes{{10'502'144, 30'000'000, 0}, {9'252'864, 25'000'000, 0}};
  const std::string text = memory_breakdown_text(memory);
  CAPTURE(text);
  CHECK(text.starts_with(
      "memory of a rank               planned: most    least  measured: most    least\n"));
  CHECK(text.find("host: optimizer                      7.00 MB  7.00 MB\n") != std::string::npos);
  CHECK(text.ends_with(
      "device and host: reserved            10.5 MB  9.25 MB         10.5 MB  9.25 MB\n"
      "process: largest resident set                                 30.0 MB  25.0 MB\n"));
  memory.measured->largest.gpu_in_use = 2'000'000;
  CHECK(memory_breakdown_text(memory).find("GPU: in use by all processes") != std::string::npos);
}

TEST_CASE("memory breakdown: a rank has reserved what is planned, and its process is larger") {
  const RandomDataset data(11);
  Job job;
  job.model = GptLite{.n_layer = 2, .n_embd = 64, .n_head = 2, .block_size = 8, .vocab_size = 11};
  job.batch = {4, 2, 2};
  TestRank rank(job, data);
  rank.step(1e-3f);
  const MemoryTable& planned = rank.plans.memory;
  const MemoryBreakdown before = memory_breakdown(planned, rank.arenas, false, rank.comm);
  CHECK_FALSE(before.measured);
  CHECK(before.largest.at_peak == planned.at_peak);
  CHECK(before.smallest.region_bytes == planned.region_bytes);
  const MemoryBreakdown after = memory_breakdown(planned, rank.arenas, true, rank.comm);
  REQUIRE(after.measured);
  const MeasuredMemory& measured = after.measured->largest;
  CHECK(measured.reserved >= planned.total());
  CHECK(measured.reserved < planned.total() + (kRegions << 12));
  CHECK(measured.resident > measured.reserved);
  CHECK(measured.resident == after.measured->smallest.resident);
  CHECK(measured.gpu_in_use == 0);
}

TEST_CASE("memory breakdown: the largest resident set is read from the process's status") {
  const TempDir folder;
  const std::string path = folder / "status";
  std::ofstream(path) << "VmPeak:\t  900 kB\nVmHWM:\t   123 kB\nVmRSS:\t  100 kB\n";
  CHECK(peak_resident_bytes(path) == 123 * 1024);
  CHECK(peak_resident_bytes(folder / "none") == 0);
}

}  // namespace
}  // namespace dstrain
