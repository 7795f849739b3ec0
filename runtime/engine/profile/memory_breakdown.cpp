#include "runtime/engine/profile/memory_breakdown.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/core/log/log.h"
#include "runtime/core/text.h"
#include "runtime/plan/report/text_table.h"

namespace dstrain {
namespace {

constexpr std::array kShownSpaces{Space::device, Space::host, Space::disk};

// A rank's numbers as ranks exchange them: the classes at the peak of each space, the regions, what is measured.
constexpr size_t kClassValues = kShownSpaces.size() * kMemoryClasses;
constexpr size_t kMeasuredFirst = kClassValues + kRegions;
constexpr size_t kValues = kMeasuredFirst + 3;

std::vector<double> exchanged_values(const MemoryTable& table, const MeasuredMemory& measured) {
  std::vector<double> values;
  const auto add = [&values](int64_t bytes) { values.push_back(static_cast<double>(bytes)); };
  for (const Space space : kShownSpaces) std::ranges::for_each(table.peak_of(space), add);
  std::ranges::for_each(table.region_bytes, add);
  for (const int64_t bytes : {measured.reserved, measured.resident, measured.gpu_in_use})
    add(bytes);
  return values;
}

MemoryTable table_of(std::span<const double> values) {
  MemoryTable table;
  size_t at = 0;
  const auto take = [&](int64_t& bytes) { bytes = static_cast<int64_t>(values[at++]); };
  for (const Space space : kShownSpaces) std::ranges::for_each(table.peak_of(space), take);
  std::ranges::for_each(table.region_bytes, take);
  return table;
}

MeasuredMemory measured_of(std::span<const double> values) {
  const auto value = [&](size_t i) { return static_cast<int64_t>(values[kMeasuredFirst + i]); };
  return {value(0), value(1), value(2)};
}

MeasuredMemory measure_memory(const Arenas& arenas) {
  const DeviceBytes gpu = arenas.device().memory();
  return {arenas.reserved_bytes(), peak_resident_bytes(), gpu.total - gpu.free};
}

// Takes the values of one rank more.
void add_rank(MemoryBreakdown::Extremes& all, const MeasuredMemory& rank) {
  for (int64_t MeasuredMemory::*value :
       {&MeasuredMemory::reserved, &MeasuredMemory::resident, &MeasuredMemory::gpu_in_use}) {
    all.largest.*value = std::max(all.largest.*value, rank.*value);
    all.smallest.*value = std::min(all.smallest.*value, rank.*value);
  }
}

std::string cell_text(int64_t bytes) {
  return bytes_text(static_cast<double>(bytes));
}

using Rows = std::vector<std::vector<std::string>>;

void add_space(const MemoryBreakdown& memory, Space space, Rows& rows) {
  if (space != Space::device && memory.largest.total(space) == 0 &&
      memory.smallest.total(space) == 0)
    return;
  const auto row = [&](std::string_view what, int64_t largest, int64_t smallest) {
    std::vector<std::string> cells{fmt::format("{}: {}", name_of(space), what), cell_text(largest),
                                   cell_text(smallest)};
    if (memory.measured) cells.insert(cells.end(), 2, "");
    rows.push_back(std::move(cells));
  };
  for (int c = 0; c < kMemoryClasses; ++c) {
    const auto index = static_cast<size_t>(c);
    row(name_of(static_cast<MemoryClass>(c)), memory.largest.peak_of(space)[index],
        memory.smallest.peak_of(space)[index]);
  }
  row("total", memory.largest.total(space), memory.smallest.total(space));
}

int64_t in_memory(const MemoryTable& table) {
  return table.total(Space::device) + table.total(Space::host);
}

}  // namespace

int64_t peak_resident_bytes(const std::filesystem::path& status) {
  std::ifstream in(status);
  for (std::string word; in >> word;)
    if (int64_t kilobytes = 0; word == "VmHWM:" && in >> kilobytes) return kilobytes * 1024;
  return 0;
}

MemoryBreakdown memory_breakdown(const MemoryTable& planned, const Arenas& arenas, bool measure,
                                 Communicator& comm) {
  const std::vector<double> mine =
      exchanged_values(planned, measure ? measure_memory(arenas) : MeasuredMemory{});
  std::vector<double> all(mine.size() * static_cast<size_t>(comm.size()));
  comm.gather_values(mine, all);
  MemoryBreakdown memory;
  for (size_t begin = 0; begin < all.size(); begin += kValues) {
    const std::span<const double> rank(all.data() + begin, kValues);
    const MemoryTable table = table_of(rank);
    if (begin == 0 || table.total() > memory.largest.total()) memory.largest = table;
    if (begin == 0 || table.total() < memory.smallest.total()) memory.smallest = table;
    if (!measure) continue;
    if (begin == 0)
      memory.measured = MemoryBreakdown::Extremes{measured_of(rank), measured_of(rank)};
    add_rank(*memory.measured, measured_of(rank));
  }
  return memory;
}

std::string memory_breakdown_text(const MemoryBreakdown& memory) {
  Rows rows{{"memory of a rank", "planned: most", "least"}};
  if (memory.measured) rows[0].insert(rows[0].end(), {"measured: most", "least"});
  for (const Space space : kShownSpaces) add_space(memory, space, rows);
  if (memory.measured) {
    const MeasuredMemory &most = memory.measured->largest, &least = memory.measured->smallest;
    rows.push_back({"device and host: reserved", cell_text(in_memory(memory.largest)),
                    cell_text(in_memory(memory.smallest)), cell_text(most.reserved),
                    cell_text(least.reserved)});
    rows.push_back({"process: largest resident set", "", "", cell_text(most.resident),
                    cell_text(least.resident)});
    if (most.gpu_in_use > 0)
      rows.push_back({"GPU: in use by all processes", "", "", cell_text(most.gpu_in_use),
                      cell_text(least.gpu_in_use)});
  }
  return text_table(rows, rows[0].size() - 1);
}

void log_memory_breakdown(const MemoryTable& planned, const Arenas& arenas, bool measure,
                          Communicator& comm) {
  const MemoryBreakdown memory = memory_breakdown(planned, arenas, measure, comm);
  if (comm.rank() != 0) return;
  const std::string text = memory_breakdown_text(memory);
  log::info("{}", text.substr(0, text.size() - 1));  // the log ends the line
}

}  // namespace dstrain
