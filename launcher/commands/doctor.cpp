// dstrain doctor: looks at this machine, or makes the preflight checks on the hosts of a hostfile. Starts no rank.
#include <algorithm>
#include <filesystem>
#include <iterator>

#include "launcher/commands/commands.h"
#include "launcher/doctor/look_at_machine.h"
#include "launcher/hosts/checks/output_probe.h"
#include "launcher/hosts/start/agents.h"
#include "launcher/hosts/start/name_wait.h"
#include "launcher/hosts/start/run_questions.h"
#include "launcher/implementations.h"
#include "launcher/input/output_folder.h"
#include "launcher/input/run_input.h"
#include "launcher/placement/machine.h"
#include "launcher/process/failure.h"
#include "launcher/process/program_path.h"
#include "launcher/ranks/run_directory.h"
#include "runtime/comm/self_comm.h"
#include "runtime/config/text.h"
#include "runtime/core/devices/cuda_device.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"
#include "runtime/core/text.h"
#include "runtime/engine/run/device_memory.h"
#include "runtime/storage/file_checksum.h"

namespace dstrain {
namespace {

std::string facts_text(const HostFacts& f, int ranks) {
  return fmt::format("{}: dstrain {}, {} on {}, {} free ({}), clock {:+.0f} s\n", f.host, f.version,
                     counted(ranks, "rank"), counted(f.cores, "core"),
                     bytes_text(static_cast<double>(f.memory_bytes)), f.memory_source,
                     f.clock_ahead_s);
}

// Makes the preflight checks on the hosts. Returns the exit status.
int check_hosts(const DoctorArguments& arguments, const Placement& placement) {
  if (arguments.json)
    fail_user("dstrain doctor --json is for this machine, and {} names hosts: leave one out",
              placement.hostfile);
  PreflightQuestions questions;
  questions.program_checksum = file_checksum("/proc/self/exe", "the program");
  std::optional<RunInput> input;
  if (!arguments.words.empty()) {
    ConfigRequest request = arguments.request;
    request.ranks = placement.ranks();
    input.emplace(read_input(request, RunsWhere::elsewhere));
    questions = questions_about(*input, request.path, arguments.words);
  }
  questions.run = new_run_name();
  add_option_questions(questions, arguments.launch, placement.hosts);
  const SshOptions ssh = ssh_options(arguments.launch);
  std::vector<std::string> lacking;
  if (const std::string lack = lack_of_addresses(placement, arguments.launch, ssh, lacking);
      !lack.empty())
    fail_user("{}", lack);
  const auto agents = start_agents(placement.hosts, ssh);
  const PreflightResult result = preflight(agents, questions);
  for (const auto& agent : agents) agent->end();
  std::string text;
  for (const HostRanks& host : placement.hosts)
    for (const HostFacts& f : result.facts)
      if (f.host == host.host) text += facts_text(f, host.ranks());
  if (!result.findings.empty()) text += "to mend:" + findings_text(result.findings) + "\n";
  text += hosts_verdict(result.findings, placement.ranks(), placement.hosts.size()) + "\n";
  print_result(text);
  return result.good() ? 0 : 1;
}

// Checks the memory of the GPUs that `ranks` ranks would use, as each rank does at its start. Throws UserError.
void check_gpus_here(const Job& job, const PlanInputs& inputs, int ranks) {
  const int gpus = cuda_device_count();
  if (!is_gpu(job.device) || gpus == 0) return;
  const int sharing = (ranks + gpus - 1) / gpus;
  SelfComm alone;
  MemoryTable memory;
  int stage = -1;  // whose memory this is
  for (int rank = 0; rank < std::min(ranks, gpus); ++rank) {
    const Place place = place_of(job, rank);
    if (place.stage() != stage) memory = make_rank_plan(job, place, inputs).memory;
    stage = place.stage();
    check_device_memory(job, memory, *make_cuda_device(rank), sharing, alone, inputs);
  }
}

// Returns a line that says what memory the ranks need on this machine. Throws UserError if it is not there.
MachineLines memory_of_run(const Job& asked, int ranks) {
  const RankProcesses processes = local_ranks(asked);
  check_memory_here(asked, ranks, processes);
  const Job job = job_of_host(asked, ranks);
  const PlanInputs inputs = plan_inputs(job, ranks);
  check_gpus_here(job, inputs, ranks);
  const HostMemoryNeed need =
      memory_need(job, planned_memory(job, inputs), inputs, ranks, processes);
  return {{.subject = "run's memory",
           .text = fmt::format("the ranks need {}{}",
                               is_gpu(job.device) ? "of the host's memory " : "", sum_text(need)),
           .values = {{"bytes", need.total()}}}};
}

// Looks at what a run of the request would meet here, and adds to the questions about the machine what follows from it.
// request.ranks must be set.
MachineLines look_at_run(ConfigRequest request, MachineQuestions& questions) {
  MachineLines lines;
  const auto look = [&lines](const std::string& subject, const auto& read) {
    std::ranges::move(lines_or_problem(subject, read), std::back_inserter(lines));
  };
  std::optional<RunInput> input;
  look("run's input", [&]() -> MachineLines {
    input.emplace(read_input(request));
    settle_to_fit(request, input->loaded,
                  RankMemory{available_memory().bytes, questions.ranks, local_ranks(input->job())});
    return {{.subject = "run's input",
             .text = fmt::format("{} and the files that it names can be read", request.path)}};
  });
  if (!input) return lines;
  const Job& job = input->job();
  questions.device = job.device;
  questions.output = job.output;
  questions.aio = job.aio;
  if (job.offload.uses_disk()) questions.drives = job.offload.nvme_paths;
  look("run's memory", [&] { return memory_of_run(job, questions.ranks); });
  look("run's drives", [&]() -> MachineLines {
    check_disks_here(job, questions.ranks);
    return {};
  });
  look("run's start", [&]() -> MachineLines {
    std::optional<OutputProbe> made;  // removes the directory again
    try {
      made.emplace(job.output, new_run_name());
    } catch (const UserError&) {
      return {};  // the line of the directory says why
    }
    refuse_if_used(job);
    check_surroundings(*input, 0);
    return {{.subject = "run's start",
             .text = "weights, checkpoints and the output directory "
                     "are as the run needs them"}};
  });
  return lines;
}

// Looks at this machine. Returns the exit status.
int check_machine(const DoctorArguments& arguments, const Placement& placement) {
  log::set_least(log::Level::warning);  // standard output is the result's
  const HostOptions& hosts = arguments.launch.hosts;
  ConfigRequest request = arguments.request;
  if (hosts.include.empty() && hosts.exclude.empty()) {
    settle_ranks(request);
  } else {
    request.ranks = placement.ranks();
    request.ranks_origin = hosts.include.empty() ? "--exclude" : "--include";
  }
  MachineQuestions questions{.ranks = static_cast<int>(*request.ranks),
                             .device = device_named(request.device.value_or("auto")),
                             .output = request.output.value_or(".")};
  const MachineLines run = request.path.empty() ? MachineLines() : look_at_run(request, questions);
  std::filesystem::path output =
      (std::filesystem::path(working_directory()) / questions.output).lexically_normal();
  if (!output.has_filename()) output = output.parent_path();
  questions.output = output.string();
  log::set_least(log::Level::error);  // what its probes warn of is in the lines
  MachineLines lines = look_at_machine(questions);
  lines.insert(lines.end(), run.begin(), run.end());
  print_result(arguments.json ? machine_report(lines, questions.ranks)
                              : fmt::format("{}, for {}\n{}", host_name(),
                                            counted(questions.ranks, "rank"), machine_text(lines)));
  return count_of(lines, Health::problem) > 0 ? 1 : 0;
}

}  // namespace

int run_doctor(const DoctorArguments& arguments) {
  const Placement placement = place_ranks(arguments.launch.hosts, local_slots());
  for (const std::string& warning : placement.warnings) log::warn("{}", warning);
  return placement.hostfile.empty() ? check_machine(arguments, placement)
                                    : check_hosts(arguments, placement);
}

}  // namespace dstrain
