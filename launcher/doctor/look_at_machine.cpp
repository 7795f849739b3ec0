#include "launcher/doctor/look_at_machine.h"

#include <fmt/core.h>

#include <algorithm>
#include <iterator>

#include "launcher/doctor/cores.h"
#include "launcher/doctor/disk.h"
#include "launcher/doctor/gpus.h"
#include "launcher/doctor/huge_pages.h"
#include "launcher/doctor/instructions.h"
#include "launcher/doctor/launch_programs.h"
#include "launcher/doctor/limits.h"
#include "launcher/doctor/local_network.h"
#include "launcher/doctor/memory.h"
#include "launcher/placement/machine.h"
#include "launcher/placement/process_limits.h"
#include "launcher/ranks/run_directory.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/world.h"
#include "runtime/core/cpu.h"
#include "runtime/core/devices/cuda_device.h"
#include "runtime/storage/disk/swap_files.h"

namespace dstrain {
namespace {

MachineLine program_line(const GpuReport& gpus) {
  const std::string& architectures = gpus.cuda.architectures;
  return {.subject = "program",
          .text = fmt::format(
              "dstrain {}, for {}{}{}", DSTRAIN_VERSION,
              gpus.built ? fmt::format("CPU and CUDA (GPUs of architecture {})", architectures)
                         : "the CPU",
              gpus.nccl ? ", with NCCL" : "", has_mpi() ? ", with MPI" : ", without MPI"),
          .values = {{"version", DSTRAIN_VERSION},
                     {"cuda", gpus.built},
                     {"architectures", architectures},
                     {"nccl", gpus.nccl},
                     {"mpi", has_mpi()}}};
}

// Returns the lines about limits. `threads`: that OMP_NUM_THREADS asks for; 0: none.
MachineLines lines_of_limits(int ranks, int threads, int gpus) {
  const ProcessNeeds needs =
      process_needs(ranks, threads > 0 ? threads : threads_per_rank(ranks), 0);
  return limit_lines(limit_facts(), needs, gpus);
}

}  // namespace

MachineLines look_at_machine(const MachineQuestions& q) {
  MachineLines lines;
  const auto look = [&lines](const std::string& subject, const auto& read) {
    std::ranges::move(lines_or_problem(subject, read), std::back_inserter(lines));
  };
  const int gpus = cuda_device_count();
  int threads = 0;
  look("GPUs", [&] {
    const GpuReport report = gpu_report(q.root);
    MachineLines found = gpu_lines(report, q.ranks, q.device);
    found.insert(found.begin(), program_line(report));
    return found;
  });
  look("cores", [&] {
    threads = threads_asked_for();
    return core_lines(core_facts(q.root, usable_cores()), q.ranks, threads);
  });
  look("kernels", [&] { return instruction_lines(instruction_facts(q.root)); });
  look("memory", [&] { return memory_lines(memory_facts(q.root), q.ranks, gpus); });
  look("huge pages", [&] { return huge_page_lines(huge_page_facts(q.root)); });
  look("limits", [&] { return lines_of_limits(q.ranks, threads, gpus); });
  look("output",
       [&] { return disk_lines("output", probe_output(q.output, q.aio, new_run_name())); });
  for (const std::string& drive : q.drives)
    look("nvme", [&] {
      return disk_lines("nvme", probe_directory(existing_swap_directory(drive), q.aio));
    });
  look("network", [] { return network_lines(network_facts()); });
  look("mpirun", [] { return launch_program_lines(launch_programs()); });
  return lines;
}

std::string machine_report(const MachineLines& lines, int ranks) {
  return nlohmann::ordered_json{{"version", DSTRAIN_VERSION},
                                {"host", host_name()},
                                {"ranks", ranks},
                                {"problems", count_of(lines, Health::problem)},
                                {"notes", count_of(lines, Health::note)},
                                {"lines", machine_json(lines)}}
             .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace dstrain
