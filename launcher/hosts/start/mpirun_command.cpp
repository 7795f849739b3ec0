#include "launcher/hosts/start/mpirun_command.h"

#include <algorithm>
#include <cstdlib>

#include "launcher/process/program_path.h"
#include "launcher/ranks/rank_environment.h"
#include "launcher/ranks/rank_link.h"
#include "launcher/ranks/run_directory.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Returns the ssh command as mpirun expects it: words separated by blanks.
std::string ssh_text(const SshOptions& options) {
  std::string text;
  for (const std::string& word : ssh_words(options)) {
    if (word.find_first_of(" \t\n\"'") != std::string::npos)
      fail_user("mpirun cannot pass on an option of ssh with a blank or quote in it: '{}'", word);
    text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

}  // namespace

RankCommand mpirun_on_hosts(const std::vector<HostRanks>& hosts, const MpirunOptions& options,
                            const std::vector<std::string>& program) {
  const std::string mpirun = find_on_path("mpirun");
  if (mpirun.empty())
    fail_user(
        "mpirun is not on PATH, and several hosts need it: install Open MPI (Debian: "
        "openmpi-bin) on all of them");
  std::string places;
  int ranks = 0;
  for (const HostRanks& host : hosts) {
    for (int i = 0; i < host.ranks(); ++i) places += (places.empty() ? "" : ",") + host.host;
    ranks += host.ranks();
  }
  check_for_ssh(options.exported, options.launcher_args);
  const std::string files = mpi_directory(options.run);
  RankCommand command;
  command.words = {
      mpirun, "--host", places, "-np", std::to_string(ranks),
      // "seq" maps one rank to each name, in their order; other mappings begin with mpirun's own host. Ranks bind
      // themselves to cores.
      "--map-by", "seq", "--bind-to", "none", "--oversubscribe", "--wdir", options.directory};
  const auto set = [&command](const std::string& name, const std::string& value) {
    command.words.insert(command.words.end(), {"--mca", name, value});
  };
  set("plm", "rsh");
  set("plm_rsh_agent", ssh_text(options.ssh));
  // mpirun reaches every host from this one, so that hosts need no ssh between each other.
  set("plm_rsh_no_tree_spawn", "1");
  set("pml", "ob1");
  set("btl", "self,vader,tcp");
  set("btl_vader_single_copy_mechanism", "none");
  // All files are in directories that the agents remove on every host, even after a crash.
  set("orte_tmpdir_base", files);
  set("btl_vader_backing_directory", files);
  if (!options.network.empty()) {
    set("oob_tcp_if_include", options.network);
    set("btl_tcp_if_include", options.network);
  }
  if (options.ports.first != 0) {
    // One port, because mpirun listens at all that it is given. Static, because a dynamic one cannot be reused for a
    // while after a run has ended.
    set("oob_tcp_static_ipv4_ports", std::to_string(options.ports.first));
    set("btl_tcp_port_min_v4", std::to_string(options.ports.first + 1));
    set("btl_tcp_port_range_v4", std::to_string(options.ports.count - 1));
  }
  command.environment = {{"OMPI_MCA_opal_signal", ""},
                         {"OMPI_MCA_orte_base_help_aggregate", "1"},
                         {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                         {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  Environment exported = options.exported;
  exported.emplace_back(kRunVariable, options.run);
  const auto find = [&exported](const std::string& name) {
    return std::ranges::find(exported, name, [](const auto& variable) { return variable.first; });
  };
  const auto asked_for = find("OMP_NUM_THREADS");
  const int threads = asked_for == exported.end() ? 0 : std::atoi(asked_for->second.c_str());
  for (const auto& setting : thread_environment(options.threads, threads))
    if (find(setting.first) == exported.end()) exported.push_back(setting);
  for (const auto& variable : exported) {
    command.words.insert(command.words.end(), {"-x", variable.first});
    command.environment.push_back(variable);
  }
  command.words.insert(command.words.end(), options.launcher_args.begin(),
                       options.launcher_args.end());
  command.words.insert(command.words.end(), program.begin(), program.end());
  return command;
}

}  // namespace dstrain
