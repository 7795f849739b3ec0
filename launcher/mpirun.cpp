#include "launcher/mpirun.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <system_error>

#include "runtime/core/cpu.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

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

RankCommand mpirun_command(int ranks, const std::vector<std::string>& program,
                           const fs::path& session) {
  const std::string mpirun = find_on_path("mpirun");
  if (mpirun.empty())
    fail_user(
        "mpirun is not on PATH, and {} rank{} it: install Open MPI (Debian: openmpi-bin), or {}",
        ranks, ranks == 1 ? " that can be started again needs" : "s need",
        ranks == 1 ? "leave --max_restarts out" : "use --num_gpus 1");
  RankCommand command;
  command.words = {mpirun, "--bind-to", "none", "--oversubscribe", "-np", std::to_string(ranks)};
  command.words.insert(command.words.end(), program.begin(), program.end());

  const Environment wanted = {
      // One machine: no remote start, no network devices to look for (a tenth of the start-up time),
      // no copying by ptrace, which containers forbid with a complaint for each message.
      {"OMPI_MCA_plm", "isolated"},
      {"OMPI_MCA_ras", "^slurm"},  // inside a job of Slurm too
      {"OMPI_MCA_pml", "ob1"},
      {"OMPI_MCA_btl", "self,vader"},
      {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"},
      // All files in one place, which is removed even where a crash leaves some.
      {"OMPI_MCA_orte_tmpdir_base", session.string()},
      {"OMPI_MCA_btl_vader_backing_directory", session.string()},
      // A crash is reported by us, without a backtrace of the library.
      {"OMPI_MCA_opal_signal", ""},
      {"OMPI_MCA_orte_base_help_aggregate", "1"},
      {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
      {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
      // libgomp reads these at start-up only (core/cpu.h).
      {"OMP_NUM_THREADS", std::to_string(threads_per_rank(ranks))},
      {"OMP_PROC_BIND", "false"},
  };
  for (const auto& setting : wanted)
    if (std::getenv(setting.first.c_str()) == nullptr) command.environment.push_back(setting);
  if (threads_per_rank(ranks) == 1 && std::getenv("OMP_WAIT_POLICY") == nullptr)
    command.environment.emplace_back("OMP_WAIT_POLICY", "passive");
  return command;
}

SessionDirectory::SessionDirectory() {
  std::error_code none;
  fs::path base = fs::temp_directory_path(none);
  if (none) base = "/tmp";
  std::string name = (base / "dstrain-XXXXXX").string();
  if (::mkdtemp(name.data()) == nullptr)
    fail_run("cannot make a directory for mpirun in {}: {} (TMPDIR names another place)",
             base.string(), std::strerror(errno));
  path_ = name;
}

SessionDirectory::~SessionDirectory() {
  std::error_code none;  // what cannot be removed stays for the system's own cleaning
  fs::remove_all(path_, none);
}

}  // namespace dstrain
