// The lines of `dstrain doctor` about this machine: facts, each with a verdict, and what to do where one is not well.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace dstrain {

// The verdict on a fact. note: it costs speed, or matters to some runs only. problem: a run would fail.
enum class Health : uint8_t { ok, note, problem };

// A fact about this machine, its verdict, and what to do.
// NOLINTNEXTLINE(bugprone-exception-escape): an empty json allocates nothing
struct MachineLine {
  std::string subject;  // "memory", "GPU 0"; several lines may have the same
  Health health = Health::ok;
  std::string text{};
  std::string remedy{};                // what to do; empty where nothing has to be done
  nlohmann::ordered_json values = {};  // the numbers and names of the fact, an object; null: none
};
using MachineLines = std::vector<MachineLine>;

// Returns "1.25 GB".
std::string size_text(int64_t bytes);

// Returns the lines that `look` returns. The message of a UserError or RunError that it throws becomes a problem.
MachineLines lines_or_problem(const std::string& subject,
                              const std::function<MachineLines()>& look);

// Returns how many lines have this verdict.
int64_t count_of(const MachineLines& lines, Health health);

// Returns the lines as a table, remedies below their facts, and the numbers of problems and notes at its end.
std::string machine_text(const MachineLines& lines);

// Returns the lines as an array of {"subject", "health", "text", "remedy", "values"}.
nlohmann::ordered_json machine_json(const MachineLines& lines);

}  // namespace dstrain
