#include "launcher/doctor/launch_programs.h"

#include <fmt/core.h>

#include "launcher/process/child.h"
#include "launcher/process/program_output.h"
#include "launcher/process/program_path.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/world.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

constexpr double kSecondsForVersion = 1;

LaunchProgram ask_for_version(const std::string& name, const std::string& option) {
  const std::string path = find_on_path(name);
  if (path.empty()) return {};
  Child child({path, option}, {});
  const std::string said = program_output(child, kSecondsForVersion);
  return {.found = true, .said = printable(said.substr(0, said.find('\n')))};
}

MachineLine mpirun_line(const LaunchPrograms& programs) {
  const OpenMpi& mpi = programs.open_mpi;
  MachineLine line{.subject = "mpirun",
                   .values = {{"found", mpi.mpirun},
                              {"open_mpi", mpi.version},
                              {"orted", mpi.orted},
                              {"built", programs.has_mpi}}};
  if (!programs.has_mpi) {
    line.text = "this program is built without MPI: its runs stay on one machine";
    return line;
  }
  constexpr const char* need = "runs on several hosts, and --launcher openmpi, need Open MPI";
  if (mpi.mpirun && mpi.orted && mpi.other.empty()) {
    line.text = fmt::format("Open MPI {}, for runs on several hosts",
                            mpi.version.empty() ? "of an unknown version" : mpi.version);
    return line;
  }
  line.health = Health::note;
  line.text = !mpi.mpirun ? fmt::format("not on PATH: {}", need)
              : !mpi.other.empty()
                  ? fmt::format("not Open MPI's (it says '{}'): {}", printable(mpi.other), need)
                  : fmt::format("its daemon orted is not on PATH: {}", need);
  line.remedy = "install Open MPI (Debian: openmpi-bin), and put it in front of others on PATH";
  return line;
}

MachineLine ssh_line(const LaunchProgram& ssh) {
  MachineLine line{.subject = "ssh", .values = {{"found", ssh.found}, {"version", ssh.said}}};
  if (ssh.found) {  // "OpenSSH_9.2p1 Debian-2, OpenSSL 3.0.19 27 Jan 2026"
    line.text = fmt::format("{}, for --hostfile",
                            ssh.said.empty() ? "found" : ssh.said.substr(0, ssh.said.find(',')));
    return line;
  }
  line.health = Health::note;
  line.text = "not on PATH: --hostfile reaches other hosts by it";
  line.remedy = "install it (Debian: openssh-client), or give the command on each host (--no_ssh)";
  return line;
}

MachineLine srun_line(const LaunchProgram& srun) {
  MachineLine line{.subject = "srun", .values = {{"found", srun.found}, {"version", srun.said}}};
  if (!srun.found)
    line.text = "not on PATH; only Slurm's jobs need it";
  else if (srun.said.starts_with("slurm"))
    line.text = srun.said;
  else
    line.text = fmt::format("found, but it tells no version{}",
                            srun.said.empty() ? " within a second" : ": " + srun.said);
  return line;
}

}  // namespace

LaunchPrograms launch_programs() {
  return {.has_mpi = has_mpi(),
          .open_mpi = find_open_mpi(),
          .ssh = ask_for_version("ssh", "-V"),
          .srun = ask_for_version("srun", "--version")};
}

MachineLines launch_program_lines(const LaunchPrograms& programs) {
  return {mpirun_line(programs), ssh_line(programs.ssh), srun_line(programs.srun)};
}

}  // namespace dstrain
