#include "launcher/hosts/mpirun_command.h"

#include <algorithm>
#include <cstdlib>

#include "launcher/hosts/agent/run_place.h"
#include "launcher/hosts/quote.h"
#include "launcher/placement/machine.h"
#include "launcher/ranks/rank_environment.h"
#include "launcher/ranks/rank_link.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// The ssh command as mpirun takes it: words separated by blanks.
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

RankCommand mpirun_on_hosts(const std::vector<HostRanks>& hosts, const HostsStart& start,
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
  check_for_ssh(start.exported, start.launcher_args);
  const std::string files = mpi_directory(start.run);
  RankCommand command;
  command.words = {
      mpirun, "--host", places, "-np", std::to_string(ranks),
      // A rank for each name, in their order: the other ways to map put ranks on the host
      // of mpirun first. Ranks bind themselves.
      "--map-by", "seq", "--bind-to", "none", "--oversubscribe", "--wdir", start.directory};
  const auto set = [&command](const std::string& name, const std::string& value) {
    command.words.insert(command.words.end(), {"--mca", name, value});
  };
  set("plm", "rsh");
  set("plm_rsh_agent", ssh_text(start.ssh));
  // Every host is reached from this one: hosts need no ssh among themselves.
  set("plm_rsh_no_tree_spawn", "1");
  set("pml", "ob1");
  set("btl", "self,vader,tcp");
  set("btl_vader_single_copy_mechanism", "none");
  // All files below names that are removed on every host, even where a crash leaves some.
  set("orte_tmpdir_base", files);
  set("btl_vader_backing_directory", files);
  if (!start.network.empty()) {
    set("oob_tcp_if_include", start.network);
    set("btl_tcp_if_include", start.network);
  }
  if (start.ports.first != 0) {
    // One: of several mpirun would take all. Static: it may follow a run that has just ended.
    set("oob_tcp_static_ipv4_ports", std::to_string(start.ports.first));
    set("btl_tcp_port_min_v4", std::to_string(start.ports.first + 1));
    set("btl_tcp_port_range_v4", std::to_string(start.ports.count - 1));
  }
  command.environment = {{"OMPI_MCA_opal_signal", ""},
                         {"OMPI_MCA_orte_base_help_aggregate", "1"},
                         {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                         {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  Environment exported = start.exported;
  exported.emplace_back(kRunVariable, start.run);
  const auto unless_set = [&exported](const std::string& name, const std::string& value) {
    const auto same = [&name](const auto& variable) { return variable.first == name; };
    if (std::none_of(exported.begin(), exported.end(), same)) exported.emplace_back(name, value);
  };
  unless_set("OMP_NUM_THREADS", std::to_string(start.threads));
  unless_set("OMP_PROC_BIND", "false");
  if (start.threads == 1) unless_set("OMP_WAIT_POLICY", "passive");
  for (const auto& variable : exported) {
    command.words.insert(command.words.end(), {"-x", variable.first});
    command.environment.push_back(variable);
  }
  command.words.insert(command.words.end(), start.launcher_args.begin(), start.launcher_args.end());
  command.words.insert(command.words.end(), program.begin(), program.end());
  return command;
}

std::string command_text(const RankCommand& command) {
  std::string text;
  for (const auto& [name, value] : command.environment)
    text += fmt::format("{}={} ", name, shell_quoted(value));
  for (const std::string& word : command.words) text += shell_quoted(word) + " ";
  text.pop_back();
  return text + "\n";
}

bool is_this_machine(const std::string& host) {
  const std::string own = host_name();
  return host == own || host == own.substr(0, own.find('.')) || host == "localhost" ||
         host == "127.0.0.1";
}

std::vector<std::string> agent_command(const std::string& host, const SshOptions& ssh,
                                       const std::string& program) {
  if (is_this_machine(host)) return {program, "host_agent", "here"};
  return ssh_command(ssh, host, {program, "host_agent"});
}

}  // namespace dstrain
