#include "launcher/mpirun.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "launcher/rank_starter.h"
#include "runtime/comm/communicator.h"
#include "runtime/core/cpu.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

Environment mpirun_settings(const fs::path& session) {
  return {
      // One machine: no remote start, no devices to look for (a quarter of its start-up time),
      // no copying by ptrace, which containers forbid with a complaint for each message.
      {"OMPI_MCA_plm", "isolated"},
      {"OMPI_MCA_ras", "^slurm"},  // inside a job of Slurm too
      {"OMPI_MCA_pml", "ob1"},
      {"OMPI_MCA_btl", "self,vader"},
      {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
      {"HWLOC_COMPONENTS", "-linuxio,-pci,-opencl,-cuda,-nvml,-rsmi,-levelzero,-gl"},
      // All files in one place, which is removed even where a crash leaves some.
      {"OMPI_MCA_orte_tmpdir_base", session.string()},
      {"OMPI_MCA_btl_vader_backing_directory", session.string()},
      // A crash is reported by us, without a backtrace of the library.
      {"OMPI_MCA_opal_signal", ""},
      {"OMPI_MCA_orte_base_help_aggregate", "1"},
      {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
      {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
  };
}

}  // namespace

std::string find_on_path(const std::string& name) {
  const char* path = std::getenv("PATH");
  const std::string all = path == nullptr ? "" : path;
  for (size_t begin = 0; begin <= all.size();) {
    const size_t colon = std::min(all.find(':', begin), all.size());
    const std::string file = (fs::path(all.substr(begin, colon - begin)) / name).string();
    std::error_code none;
    if (fs::is_regular_file(file, none) && ::access(file.c_str(), X_OK) == 0) return file;
    begin = colon + 1;
  }
  return "";
}

std::vector<std::string> own_command(const std::vector<std::string>& words) {
  std::vector<std::string> all = {fs::read_symlink("/proc/self/exe").string()};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

std::string local_starter() {
  return has_mpi() && !find_on_path("mpirun").empty() ? "mpirun" : kOwnStarter;
}

RankCommand start_command(int ranks, const std::vector<std::string>& program,
                          const fs::path& session) {
  RankCommand command;
  Environment wanted = {
      // libgomp reads these at start-up only (core/cpu.h).
      {"OMP_NUM_THREADS", std::to_string(threads_per_rank(ranks))},
      {"OMP_PROC_BIND", "false"},
  };
  if (threads_per_rank(ranks) == 1) wanted.emplace_back("OMP_WAIT_POLICY", "passive");
  command.words = program;
  if (local_starter() == kOwnStarter) {
    command.words.insert(command.words.begin() + 1, {kRankStarterCommand, std::to_string(ranks)});
  } else {
    command.words.insert(command.words.begin(), {find_on_path("mpirun"), "--bind-to", "none",
                                                 "--oversubscribe", "-np", std::to_string(ranks)});
    const Environment settings = mpirun_settings(session);
    wanted.insert(wanted.end(), settings.begin(), settings.end());
  }
  for (const auto& setting : wanted)
    if (std::getenv(setting.first.c_str()) == nullptr) command.environment.push_back(setting);
  return command;
}

SessionDirectory::SessionDirectory() {
  std::error_code none;
  fs::path base = fs::temp_directory_path(none);
  if (none) base = "/tmp";
  std::string name = (base / "dstrain-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    fail_run("cannot make a directory for the run in {}: {} (TMPDIR names another place)",
             base.string(), std::strerror(errno));
  path_ = name;
}

SessionDirectory::~SessionDirectory() {
  std::error_code none;  // what cannot be removed stays for the system's own cleaning
  fs::remove_all(path_, none);
}

}  // namespace dstrain
