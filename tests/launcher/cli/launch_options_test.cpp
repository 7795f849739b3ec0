#include "launcher/cli/launch_options.h"

#include <catch2/catch.hpp>

#include "launcher/cli/parse_arguments.h"
#include "models/registry.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Words = std::vector<std::string>;

TrainArguments parse_train(Words words) {
  words.insert(words.begin(), {"--config", "c.json"});
  return std::get<TrainArguments>(parse_arguments(words, model_registry()));
}

std::string error_of(const Words& words) {
  try {
    parse_train(words);
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

TEST_CASE("every option of the start reaches its field") {
  const TrainArguments a = parse_train({"--hostfile",
                                        "hosts",
                                        "--include",
                                        "n1:0,2@n2",
                                        "--exclude",
                                        "n3",
                                        "--num_nodes",
                                        "2",
                                        "--num_gpus",
                                        "4",
                                        "--launcher",
                                        "openmpi",
                                        "--master_addr",
                                        "10.0.0.1",
                                        "--master_port",
                                        "29501",
                                        "--ssh_port",
                                        "2222",
                                        "--no_ssh_check",
                                        "--force_multi",
                                        "--save_pid",
                                        "--enable_each_rank_log",
                                        "logs",
                                        "--bind_cores_to_rank",
                                        "--bind_core_list",
                                        "0-3,8",
                                        "--export",
                                        "A=1",
                                        "--export",
                                        "B",
                                        "--export",
                                        "C=",
                                        "--max_restarts",
                                        "3",
                                        "--elastic",
                                        "--dry_run",
                                        "--quiet"});
  const LaunchOptions& o = a.launch;
  CHECK(o.hosts.hostfile == "hosts");
  CHECK(o.hosts.include == "n1:0,2@n2");
  CHECK(o.hosts.exclude == "n3");
  CHECK(o.hosts.nodes == 2);
  CHECK(o.hosts.slots_each == 4);
  CHECK(a.request.ranks == 4);
  CHECK(o.front == Front::openmpi);
  CHECK(o.master_addr == "10.0.0.1");
  CHECK(o.master_port == 29501);
  CHECK(o.ssh_port == 2222);
  CHECK(o.no_ssh_check);
  CHECK(o.force_multi);
  CHECK(o.save_pid);
  CHECK(o.rank_log_dir == "logs");
  CHECK(o.bind_cores_to_rank);
  CHECK(o.bind_core_list == "0-3,8");
  CHECK(o.exports == Words{"A=1", "B", "C="});
  CHECK(o.max_restarts == 3);
  CHECK(o.elastic);
  CHECK(o.dry_run);
  CHECK(o.quiet);
}

TEST_CASE("DeepSpeed's short names and other spellings work") {
  const LaunchOptions o =
      parse_train({"-H", "hosts", "-i", "n1", "-e", "n2", "-q", "--num_accelerators", "3"}).launch;
  CHECK(o.hosts.hostfile == "hosts");
  CHECK(o.hosts.include == "n1");
  CHECK(o.hosts.exclude == "n2");
  CHECK(o.quiet);
  CHECK(o.hosts.slots_each == 3);
  CHECK(parse_train({"-Hhosts"}).launch.hosts.hostfile == "hosts");
  CHECK(parse_train({"--launcher=SLURM"}).launch.front == Front::slurm);
}

TEST_CASE("DeepSpeed's defaults say that nothing is given") {
  const LaunchOptions o =
      parse_train({"-i", "", "--exclude", "", "--num_gpus", "-1", "--num_nodes=-1"}).launch;
  CHECK(o.hosts.include.empty());
  CHECK(o.hosts.exclude.empty());
  CHECK_FALSE(o.hosts.nodes.has_value());
  CHECK_FALSE(o.hosts.slots_each.has_value());
  CHECK(error_of(Words{"--num_gpus", "-2"}) ==
        "--num_gpus: expected an integer from 1 to 65536, got '-2'");
}

TEST_CASE("what is not given of the start is absent") {
  const LaunchOptions o = parse_train({}).launch;
  CHECK(o.hosts.hostfile.empty());
  CHECK_FALSE(o.hosts.nodes.has_value());
  CHECK_FALSE(o.hosts.slots_each.has_value());
  CHECK(o.front == Front::automatic);
  CHECK_FALSE(o.master_port.has_value());
  CHECK_FALSE(o.ssh_port.has_value());
  CHECK(o.exports.empty());
  CHECK(o.max_restarts == 0);
  CHECK_NOTHROW(refuse_contradictions(o));
}

TEST_CASE("hosts takes what chooses hosts and slots") {
  const auto a = std::get<HostsArguments>(parse_arguments(
      {"hosts", "-H", "f", "-i", "a", "-e", "b", "--num_nodes", "2", "--num_gpus=3", "--json"},
      model_registry()));
  CHECK(a.hosts.hostfile == "f");
  CHECK(a.hosts.include == "a");
  CHECK(a.hosts.exclude == "b");
  CHECK(a.hosts.nodes == 2);
  CHECK(a.hosts.slots_each == 3);
  CHECK(a.json);
}

TEST_CASE("--launcher_args is split at blanks outside quotes, and nothing is expanded") {
  CHECK(parse_train({"--launcher_args", "--mca btl tcp"}).launch.launcher_args ==
        Words{"--mca", "btl", "tcp"});
  CHECK(parse_train({"--launcher_args=-x  'a b'c \"$(id)\" \t'' \"it's\" ~/*"})
            .launch.launcher_args == Words{"-x", "a bc", "$(id)", "", "it's", "~/*"});
}

TEST_CASE("a wrong option of the start is one line that says what to do") {
  const auto [words, message] = GENERATE(table<Words, std::string>({
      {{"--launcher", "pdsh"},
       "--launcher pdsh: ranks on several hosts are started over ssh by Open MPI, pdsh is not "
       "needed: use --launcher openmpi, or --launcher slurm inside an allocation"},
      {{"--launcher", "MPICH"},
       "--launcher mpich: dstrain is built on Open MPI and cannot join the ranks of another MPI: "
       "use --launcher openmpi, or --launcher slurm inside an allocation"},
      {{"--launcher", "impi"},
       "--launcher impi: dstrain is built on Open MPI and cannot join the ranks of another MPI: "
       "use --launcher openmpi, or --launcher slurm inside an allocation"},
      {{"--launcher", "mvapich"},
       "--launcher mvapich: dstrain is built on Open MPI and cannot join the ranks of another "
       "MPI: use --launcher openmpi, or --launcher slurm inside an allocation"},
      {{"--launcher", "ssh"}, "--launcher: expected none, local, openmpi or slurm, got 'ssh'"},
      {{"--launcher_args", "--a 'b"}, "--launcher_args: a quote is not closed in '--a 'b'"},
      {{"--num_nodes", "0"}, "--num_nodes: expected an integer from 1 to 65536, got '0'"},
      {{"--master_port", "65536"},
       "--master_port: expected an integer from 1 to 65535, got '65536'"},
      {{"--ssh_port", "ssh"}, "--ssh_port: expected an integer from 1 to 65535, got 'ssh'"},
      {{"--max_restarts", "-1"}, "--max_restarts: expected an integer from 0 up, got '-1'"},
      {{"--export", "=1"},
       "--export: expected NAME or NAME=VALUE with a name of letters, digits and _, got '=1'"},
      {{"--export", "9A=1"},
       "--export: expected NAME or NAME=VALUE with a name of letters, digits and _, got '9A=1'"},
      {{"--export", "A;B=1"},
       "--export: expected NAME or NAME=VALUE with a name of letters, digits and _, got 'A;B=1'"},
      {{"-H"},
       "--hostfile: the value is missing, expected --hostfile FILE: the hosts, a line 'NAME "
       "slots=N' "
       "for each"},
      {{"-H", "a", "--hostfile", "b"}, "--hostfile is given 2 times"},
      {{"--hostfiel", "a"}, "unknown option '--hostfiel'; did you mean --hostfile?"},
  }));
  CAPTURE(words);
  CHECK(error_of(words) == message);
}

TEST_CASE("--elastic says what a restart may do, so there must be one") {
  CHECK_THROWS_WITH(
      refuse_contradictions(parse_train({"--elastic"}).launch),
      "--elastic says that a restart may leave out a host that failed: add --max_restarts N, or "
      "leave --elastic out");
  CHECK_NOTHROW(refuse_contradictions(parse_train({"--elastic", "--max_restarts=1"}).launch));
}

TEST_CASE("hosts that are started by hand say which they are") {
  const auto refused = [](const std::vector<std::string>& words) {
    try {
      refuse_contradictions(parse_train(words).launch);
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  const std::vector<std::string> whole = {"--no_ssh", "--node_rank",   "1",       "--nnodes",
                                          "2",        "--master_addr", "10.0.0.1"};
  CHECK(refused(whole).empty());
  CHECK(refused({"--no_ssh", "--node_rank=1", "--nnodes=2"}) ==
        "--no_ssh needs --node_rank K, --nnodes N and --master_addr ADDRESS (of node 0) on every "
        "host");
  CHECK(refused({"--node_rank=1"}) ==
        "--node_rank says which host this is where every host is started by hand: add --no_ssh, or "
        "leave it out");
  CHECK(refused({"--no_ssh", "--node_rank=2", "--nnodes=2", "--master_addr=a"}) ==
        "--node_rank is 2, and --nnodes 2: hosts are numbered from 0");
  std::vector<std::string> twice = whole;
  twice.insert(twice.end(), {"--hostfile", "hosts"});
  CHECK(refused(twice).starts_with("--no_ssh takes the hosts that come"));
}

}  // namespace
}  // namespace dstrain
