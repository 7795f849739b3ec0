// dstrain doctor: the preflight checks alone, on this machine or on the hosts of a hostfile.
#include "launcher/commands/commands.h"
#include "launcher/hosts/start/agents.h"
#include "launcher/hosts/start/run_questions.h"
#include "launcher/process/failure.h"
#include "launcher/ranks/run_directory.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/core/text.h"
#include "runtime/storage/file_checksum.h"

namespace dstrain {
namespace {

std::string facts_text(const HostFacts& f, int ranks) {
  return fmt::format("{}: dstrain {}, {} on {}, {} free ({}), clock {:+.0f} s\n", f.host, f.version,
                     counted(ranks, "rank"), counted(f.cores, "core"),
                     bytes_text(static_cast<double>(f.memory_bytes)), f.memory_source,
                     f.clock_ahead_s);
}

}  // namespace

int run_doctor(const DoctorArguments& arguments, const ModelRegistry& models) {
  const Placement placement = place_ranks(arguments.launch.hosts, local_slots());
  for (const std::string& warning : placement.warnings) log::warn("{}", warning);
  PreflightQuestions questions;
  questions.program_checksum = file_checksum("/proc/self/exe", "the program");
  std::optional<RunInput> input;
  if (!arguments.words.empty()) {
    const Arguments parsed = parse_arguments(arguments.words, models);
    ConfigRequest request = std::get<TrainArguments>(parsed).request;
    request.ranks = placement.ranks();
    input.emplace(read_input(request, RunsWhere::elsewhere));
    questions = questions_about(*input, request.path, arguments.words);
  }
  questions.run = new_run_name();
  add_option_questions(questions, arguments.launch, placement.hosts);
  const auto agents = start_agents(placement.hosts, ssh_options(arguments.launch));
  const PreflightResult result = preflight(agents, questions);
  for (const auto& agent : agents) agent->end();
  std::string text;
  for (const HostRanks& host : placement.hosts)
    for (const HostFacts& f : result.facts)
      if (f.host == host.host) text += facts_text(f, host.ranks());
  if (!result.findings.empty()) text += "to mend:" + findings_text(result.findings) + "\n";
  print_result(text);
  return result.good() ? 0 : 1;
}

}  // namespace dstrain
