#include "launcher/doctor/limits.h"

#include <fmt/core.h>

#include <string>

namespace dstrain {
namespace {

constexpr int64_t kLeastStack = int64_t{1} << 20;

std::string number_or_unlimited(int64_t limit) {
  return limit == kUnlimited ? "unlimited" : fmt::format("{}", limit);
}

std::string size_or_unlimited(int64_t limit) {
  return limit == kUnlimited ? "unlimited" : size_text(limit);
}

nlohmann::ordered_json number_or_null(int64_t limit) {
  return limit == kUnlimited ? nlohmann::ordered_json() : nlohmann::ordered_json(limit);
}

// Returns the line of a limit and of what a run needs of it. `lacking`: a problem that lacks() has found; null: none.
MachineLine limit_line(const std::string& subject, const std::string& text, int64_t limit,
                       int64_t needed, const ProcessLack* lacking) {
  return {
      .subject = subject,
      .health = lacking == nullptr ? Health::ok : Health::problem,
      .text = lacking == nullptr ? fmt::format("{}, a run needs {}", text, needed) : lacking->text,
      .values = {{"limit", number_or_null(limit)}, {"needed", needed}}};
}

MachineLine locked_line(int64_t limit, int gpus) {
  MachineLine line{.subject = "locked memory",
                   .text = fmt::format("{} (ulimit -l)", size_or_unlimited(limit)),
                   .values = {{"limit", number_or_null(limit)}}};
  if (gpus > 0 && limit != kUnlimited) {
    line.health = Health::note;
    line.text += ": memory that is offloaded from GPUs may not be pinned, which slows its copies";
    line.remedy =
        "ulimit -l unlimited, /etc/security/limits.conf, or docker run --ulimit memlock=-1";
  }
  return line;
}

MachineLine core_file_line(int64_t limit) {
  return {.subject = "core files",
          .text = limit == 0 ? "a crash leaves none (ulimit -c unlimited lets it)"
                             : fmt::format("a crash may leave one of {} (ulimit -c 0 prevents it)",
                                           limit == kUnlimited ? "any size" : size_text(limit)),
          .values = {{"limit", number_or_null(limit)}}};
}

MachineLine stack_line(int64_t limit) {
  MachineLine line{.subject = "stack",
                   .text = fmt::format("{} for each thread (ulimit -s)", size_or_unlimited(limit)),
                   .values = {{"limit", number_or_null(limit)}}};
  if (limit < kLeastStack) {
    line.health = Health::note;
    line.remedy = "ulimit -s 8192: threads of libraries may need more than 1 MiB";
  }
  return line;
}

}  // namespace

LimitFacts limit_facts() {
  return {.processes = process_limits(),
          .locked = resource_limit(RLIMIT_MEMLOCK),
          .core_file = resource_limit(RLIMIT_CORE),
          .stack = resource_limit(RLIMIT_STACK)};
}

MachineLines limit_lines(const LimitFacts& facts, const ProcessNeeds& needs, int gpus) {
  const std::vector<ProcessLack> all = lacks(facts.processes, needs, "here");
  const auto lacking = [&all](const std::string& what) -> const ProcessLack* {
    for (const ProcessLack& lack : all)
      if (lack.what == what) return &lack;
    return nullptr;
  };
  const FreeProcesses& free = facts.processes.processes;
  return {
      limit_line("open files",
                 fmt::format("{} (ulimit -n)", number_or_unlimited(facts.processes.open_files)),
                 facts.processes.open_files, needs.open_files, lacking("files")),
      limit_line("processes",
                 free.source.empty() ? number_or_unlimited(free.count)
                                     : fmt::format("{} may be started ({})",
                                                   number_or_unlimited(free.count), free.source),
                 free.count, needs.processes, lacking("processes")),
      locked_line(facts.locked, gpus), core_file_line(facts.core_file), stack_line(facts.stack)};
}

}  // namespace dstrain
