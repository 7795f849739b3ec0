#include "launcher/cli/launch_options.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "launcher/cli/headings.h"
#include "launcher/cli/option_readers.h"
#include "launcher/process/environment.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

constexpr int64_t kMostPort = 65535;
constexpr int64_t kLongestHostWait = 86400;  // a day

struct FrontName {
  std::string_view name;
  Front front;
};
constexpr std::array<FrontName, 4> kFronts{{{"none", Front::none},
                                            {"local", Front::local},
                                            {"openmpi", Front::openmpi},
                                            {"slurm", Front::slurm}}};

// DeepSpeed's launchers that dstrain does not have, and why.
struct OtherLauncher {
  std::string_view name;
  const char* reason;
};
constexpr std::array<OtherLauncher, 4> kOthers{{
    {"pdsh", "ranks on several hosts are started over ssh by Open MPI, pdsh is not needed"},
    {"mpich", "dstrain is built on Open MPI and cannot join the ranks of another MPI"},
    {"impi", "dstrain is built on Open MPI and cannot join the ranks of another MPI"},
    {"mvapich", "dstrain is built on Open MPI and cannot join the ranks of another MPI"},
}};

Front front_of(const std::string& option, const std::string& value) {
  const std::string name = lower_case(value);
  for (const FrontName& known : kFronts)
    if (name == known.name) return known.front;
  for (const OtherLauncher& other : kOthers)
    if (name == other.name)
      fail_user("{} {}: {}: use {} openmpi, or {} slurm inside an allocation", option, name,
                other.reason, option, option);
  fail_user("{}: expected none, local, openmpi or slurm, got '{}'", option, printable(value));
}

// Splits a text at blanks outside quotes ('...' and "..."), as a shell does, and expands nothing.
std::vector<std::string> words_of(const std::string& option, const std::string& text) {
  std::vector<std::string> words;
  std::string word;
  bool inside = false;  // in a word, which may still be empty
  char quote = 0;
  for (const char c : text) {
    if (quote != 0 ? c == quote : c == '"' || c == '\'') {
      quote = quote != 0 ? '\0' : c;
      inside = true;
    } else if (quote == 0 && std::string_view(" \t\n\r").find(c) != std::string_view::npos) {
      if (inside) words.push_back(word);
      word.clear();
      inside = false;
    } else {
      word += c;
      inside = true;
    }
  }
  if (quote != 0) fail_user("{}: a quote is not closed in '{}'", option, printable(text));
  if (inside) words.push_back(word);
  return words;
}

void read_export(std::vector<std::string>& exports, const std::string& option,
                 const std::string& value) {
  const std::string name = value.substr(0, value.find('='));
  if (!is_variable_name(name))
    fail_user("{}: expected NAME or NAME=VALUE with a name of letters, digits and _, got '{}'",
              option, printable(value));
  exports.push_back(value);
}

// DeepSpeed's launchers pass on empty filters for those that are not given.
CommandLine::Reader text_or_nothing(std::string& target) {
  return [&target](const std::string&, const std::string& value) { target = value; };
}

}  // namespace

void add_host_options(CommandLine& line, HostOptions& options) {
  line.group(heading::kHosts);
  line.option("--hostfile,-H", "FILE", "the hosts, a line 'NAME slots=N' for each",
              text(options.hostfile));
  line.option("--include,-i", "NODE[:slot,slot][@NODE...]", "the hosts and slots to use",
              text_or_nothing(options.include));
  line.option("--exclude,-e", "NODE[:slot,slot][@NODE...]", "the hosts and slots to leave out",
              text_or_nothing(options.exclude));
  line.option("--num_nodes", "N", "use the first N hosts", count_or_all(options.nodes, kMostRanks));
}

void add_launch_options(CommandLine& line, LaunchOptions& options) {
  add_host_options(line, options.hosts);
  line.option("--launcher", "none|local|openmpi|slurm",
              "who starts the ranks (found out); none: nobody, this process trains alone",
              [&options](const std::string& option, const std::string& value) {
                options.front = front_of(option, value);
              });
  line.option("--launcher_args", "WORDS", "further words for the command that starts the ranks",
              [&options](const std::string& option, const std::string& value) {
                options.launcher_args = words_of(option, value);
              });
  line.option("--master_addr", "ADDRESS", "of the first host: the run stays in its network (any)",
              text(options.master_addr));
  line.option("--master_port", "PORT", "the first of the ports at which the run listens (any)",
              integer(options.master_port, 1, kMostPort));
  line.option("--ssh_port", "PORT", "the port of the hosts' ssh servers",
              integer(options.ssh_port, 1, kMostPort));
  line.option("--host_wait", "SECONDS",
              "wait so long for hosts whose names have no address yet (120 for a hostfile that was "
              "found, else 0)",
              integer(options.host_wait, 0, kLongestHostWait));
  line.flag("--no_ssh_check",
            "wait a minute for ssh, not 15 s, before a host counts as unreachable",
            options.no_ssh_check);
  line.flag("--no_ssh", "this command is given on every host, there is no ssh", options.no_ssh);
  line.option("--node_rank", "K", "with --no_ssh: which host this is, from 0",
              integer(options.node_rank, 0, kMostRanks));
  line.option("--nnodes", "N", "with --no_ssh: how many hosts there are",
              integer(options.nnodes, 1, kMostRanks));
  line.option("--secret_file", "FILE",
              "of this user alone: a secret by which the run's hosts know each other",
              text(options.secret_file));
  line.flag("--force_multi", "start ranks as on several hosts where there is one",
            options.force_multi);
  line.group(heading::kProcesses);
  line.repeated("--export", "NAME[=VALUE]", "set a variable for every rank; may be repeated",
                [&options](const std::string& option, const std::string& value) {
                  read_export(options.exports, option, value);
                });
  line.flag("--bind_cores_to_rank", "give every rank cores of its own", options.bind_cores_to_rank);
  line.option("--bind_core_list", "0-3,8-11", "the cores to share out (all)",
              text(options.bind_core_list));
  line.flag("--save_pid", "write the launching process's id into a file", options.save_pid);
  line.option("--max_restarts", "N", "start again from the newest checkpoint after a failure (0)",
              integer(options.max_restarts, 0));
  line.flag("--elastic", "a restart may leave a failed host out", options.elastic);
  line.flag("--dry_run", "print where ranks would run and the command, start nothing",
            options.dry_run);
  line.group(heading::kPrinting);
  line.option("--enable_each_rank_log", "DIR", "write what each rank prints into a file of its own",
              text(options.rank_log_dir));
  line.flag("--quiet,-q", "print warnings and errors only", options.quiet);
  line.flag("--log_time", "begin every line with date and time", options.log_time);
}

namespace {

// Checks --no_ssh and the options that say which host this is.
void refuse_half_given_nodes(const LaunchOptions& options) {
  if (!options.no_ssh) {
    if (options.node_rank || options.nnodes)
      fail_user(
          "{} says which host this is where every host is started by hand: add --no_ssh, or leave "
          "it out",
          options.node_rank ? "--node_rank" : "--nnodes");
    return;
  }
  const HostOptions& hosts = options.hosts;
  if (!options.node_rank || !options.nnodes || options.master_addr.empty())
    fail_user(
        "--no_ssh needs --node_rank K, --nnodes N and --master_addr ADDRESS (of node 0) on every "
        "host");
  if (*options.node_rank >= *options.nnodes)
    fail_user("--node_rank is {}, and --nnodes {}: hosts are numbered from 0", *options.node_rank,
              *options.nnodes);
  if (!hosts.hostfile.empty() || !hosts.include.empty() || !hosts.exclude.empty() || hosts.nodes)
    fail_user(
        "--no_ssh takes the hosts that come, each with its own --num_gpus: leave --hostfile, "
        "--include, "
        "--exclude and --num_nodes out");
  if (options.front == Front::local || options.front == Front::slurm)
    fail_user("--no_ssh starts ranks on several hosts: leave --launcher out");
}

// --launcher none: this process is the only rank.
void refuse_others_of_lone_rank(const LaunchOptions& options) {
  if (options.front != Front::none) return;
  const HostOptions& hosts = options.hosts;
  const std::string_view other = options.no_ssh                     ? "--no_ssh"
                                 : options.force_multi              ? "--force_multi"
                                 : !hosts.hostfile.empty()          ? "--hostfile"
                                 : !hosts.include.empty()           ? "--include"
                                 : !hosts.exclude.empty()           ? "--exclude"
                                 : hosts.nodes                      ? "--num_nodes"
                                 : hosts.slots_each.value_or(1) > 1 ? "--num_gpus"
                                                                    : "";
  if (!other.empty())
    fail_user(
        "--launcher none trains on one rank, in this process, and {} asks for others: leave "
        "one of them out",
        other);
}

}  // namespace

void refuse_contradictions(const LaunchOptions& options) {
  refuse_others_of_lone_rank(options);
  refuse_half_given_nodes(options);
  if (options.elastic && options.max_restarts == 0)
    fail_user(
        "--elastic says that a restart may leave out a host that failed: add --max_restarts N, or "
        "leave --elastic out");
}

void note_without_network(const LaunchOptions& options, const std::string& why) {
  for (const auto& [option, given] : {std::pair{"--master_addr", !options.master_addr.empty()},
                                      std::pair{"--master_port", options.master_port.has_value()}})
    if (given) log::info("{} has no effect: {}", option, why);
}

}  // namespace dstrain
