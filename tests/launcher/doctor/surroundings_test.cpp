// The network and the programs that start ranks on other machines.
#include <catch2/catch.hpp>

#include "launcher/doctor/launch_programs.h"
#include "launcher/doctor/local_network.h"
#include "launcher/placement/machine.h"
#include "runtime/comm/world.h"
#include "tests/launcher/doctor/made_up_machine.h"

namespace dstrain {
namespace {

TEST_CASE("this machine has a loopback interface and a name") {
  const NetworkFacts facts = network_facts();
  CHECK(facts.loopback);
  CHECK(facts.name == host_name());
  CHECK(facts.addresses == own_addresses());
}

TEST_CASE("a network that is well is told with the addresses for other hosts") {
  const NetworkFacts facts{
      .loopback = true, .name = "node1", .address = "10.0.0.1", .addresses = {{"10.0.0.1", 24}}};
  const MachineLines lines = network_lines(facts);
  REQUIRE(lines.size() == 2);
  CHECK(count_of(lines, Health::ok) == 2);
  CHECK(lines[1].text == "node1 is 10.0.0.1; addresses for other hosts: 10.0.0.1/24");
  CHECK(lines[1].values["addresses"] == nlohmann::ordered_json::array({"10.0.0.1"}));
}

TEST_CASE("no loopback and a name without an address are notes") {
  const MachineLines lines = network_lines({.loopback = false, .name = "node1"});
  CHECK_FALSE(line_with(lines, "loopback", Health::note).remedy.empty());
  const MachineLine name = line_with(lines, "host name", Health::note);
  CHECK(name.text ==
        "node1 is unknown; addresses for other hosts: none: no address for the name was found "
        "within a second");
  CHECK(name.remedy.starts_with("add '127.0.1.1 node1' to /etc/hosts"));
}

TEST_CASE("programs of other hosts are told with their versions") {
  const LaunchPrograms all{.has_mpi = true,
                           .open_mpi = {true, true, "4.1.4", ""},
                           .ssh = {.found = true, .said = "OpenSSH_9.2p1, OpenSSL 3.0.19"},
                           .srun = {.found = true, .said = "slurm-wlm 22.05.8"}};
  const MachineLines lines = launch_program_lines(all);
  REQUIRE(lines.size() == 3);
  CHECK(count_of(lines, Health::ok) == 3);
  CHECK(lines[0].text == "Open MPI 4.1.4, for runs on several hosts");
  CHECK(lines[1].text == "OpenSSH_9.2p1, for --hostfile");
  CHECK(lines[2].text == "slurm-wlm 22.05.8");
}

TEST_CASE("programs that are missing are notes, but for Slurm's") {
  const MachineLines none = launch_program_lines({.has_mpi = true});
  CHECK(count_of(none, Health::note) == 2);
  CHECK(none[0].text.starts_with("not on PATH: runs on several hosts"));
  CHECK(none[2].health == Health::ok);
  const LaunchPrograms odd{.has_mpi = true, .srun = {.found = true, .said = "srun: error: x"}};
  CHECK(launch_program_lines(odd)[2].text == "found, but it tells no version: srun: error: x");
  const LaunchPrograms slow{.has_mpi = true, .srun = {.found = true}};
  CHECK(launch_program_lines(slow)[2].text == "found, but it tells no version within a second");
  const auto mpirun = [](const OpenMpi& mpi) {
    return launch_program_lines({.has_mpi = true, .open_mpi = mpi})[0];
  };
  CHECK(mpirun({true, true, "", "HYDRA"}).text.starts_with("not Open MPI's (it says 'HYDRA')"));
  CHECK(mpirun({true, false, "4.1.4", ""}).text.starts_with("its daemon orted"));
  CHECK(mpirun({true, false, "4.1.4", ""}).health == Health::note);
  CHECK(launch_program_lines({.has_mpi = false})[0].health == Health::ok);
}

}  // namespace
}  // namespace dstrain
