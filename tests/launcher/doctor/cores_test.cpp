#include "launcher/doctor/cores.h"

#include <fmt/core.h>

#include <catch2/catch.hpp>

#include "runtime/core/cpu.h"
#include "tests/launcher/doctor/made_up_machine.h"

namespace dstrain {
namespace {

// Two sockets, each a NUMA node with two physical cores of two hardware threads: core c and core c + 4.
void make_eight_cores(const MadeUpMachine& machine) {
  const std::string system = "sys/devices/system/";
  machine.file("proc/cpuinfo",
               "processor\t: 0\nmodel name\t: Some Processor 3000\nflags\t\t: fpu\n\n"
               "processor\t: 1\nmodel name\t: another\n");
  machine.file(system + "cpu/online", "0-7\n");
  for (int core = 0; core < 8; ++core) {
    const std::string topology = fmt::format("{}cpu/cpu{}/topology/", system, core);
    machine.file(topology + "thread_siblings_list", fmt::format("{},{}\n", core % 4, core % 4 + 4));
    machine.file(topology + "physical_package_id", fmt::format("{}\n", core % 4 / 2));
  }
  machine.file(system + "node/online", "0-1\n");
  machine.file(system + "node/node0/cpulist", "0-1,4-5\n");
  machine.file(system + "node/node1/cpulist", "2-3,6-7\n");
}

TEST_CASE("cores are those of the affinity mask and of the control group's quota") {
  const MadeUpMachine machine;
  make_eight_cores(machine);
  machine.file("proc/self/cgroup", "0::/job\n");
  machine.file("sys/fs/cgroup/job/cpu.max", "250000 100000\n");
  const CoreFacts facts = core_facts(machine.root(), {0, 1, 2, 4, 5, 6});
  CHECK(facts.processor == "Some Processor 3000");
  CHECK(facts.online.size() == 8);
  CHECK(facts.quota == 3);
  CHECK(facts.count() == 3);
  CHECK(facts.physical == 3);
  CHECK(facts.sockets == 2);
  CHECK(facts.nodes == 2);
  const MachineLines lines = core_lines(facts, 1, 0);
  REQUIRE(lines.size() == 4);
  CHECK(lines[0].text == "Some Processor 3000");
  CHECK(lines[1].health == Health::ok);
  CHECK(lines[1].text ==
        "a run may use 6 cores (0-2,4-6) of 8: hardware threads of 3 physical ones, 2 sockets, 2 "
        "NUMA nodes");
  CHECK(lines[1].values["usable"] == 6);
  CHECK(lines[1].values["quota"] == 3);
  CHECK(lines[2].text == "the affinity of this process leaves out 2 cores");
  CHECK(lines[3].text == "the CPU quota of a control group is that of 3 cores");
  for (const MachineLine& line : {lines[2], lines[3]}) {
    CHECK(line.health == Health::note);
    CHECK_FALSE(line.remedy.empty());
  }
}

TEST_CASE("cores of one node have one node's memory, whatever the machine has") {
  const MadeUpMachine machine;
  make_eight_cores(machine);
  const CoreFacts facts = core_facts(machine.root(), {2, 3});
  CHECK(facts.sockets == 1);
  CHECK(facts.nodes == 1);
  CHECK(facts.physical == 2);
  CHECK(core_lines(facts, 2, 0)[1].text ==
        "a run may use 2 cores (2-3) of 8: one hardware thread each, 1 socket, 1 NUMA node");
}

TEST_CASE("ranks and threads beyond the cores, and several nodes, are notes") {
  const MadeUpMachine machine;
  make_eight_cores(machine);
  const CoreFacts facts = core_facts(machine.root(), {0, 1, 2, 3, 4, 5, 6, 7});
  CHECK(count_of(core_lines(facts, 1, 8), Health::note) == 0);
  const auto notes = [&facts](int ranks, int threads) {
    std::string text;
    for (const MachineLine& line : core_lines(facts, ranks, threads))
      if (line.health != Health::ok) text += line.text + "\n";
    return text;
  };
  CHECK(notes(8, 0) == "the cores are in 2 NUMA nodes\n");
  CHECK(notes(9, 0) == "9 ranks share 8 cores\nthe cores are in 2 NUMA nodes\n");
  CHECK(notes(1, 9) == "1 rank of 9 threads each (OMP_NUM_THREADS) share 8 cores\n");
}

TEST_CASE("a machine whose kernel tells nothing about its cores has those of the mask") {
  const MadeUpMachine machine;
  const CoreFacts facts = core_facts(machine.root(), {0, 3});
  CHECK(facts.online == std::vector<int>{0, 3});
  CHECK(facts.quota == 0);
  CHECK(facts.sockets == 1);
  CHECK(facts.nodes == 1);
  const MachineLines lines = core_lines(facts, 1, 0);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].text == "the kernel does not tell its name");
  CHECK(cpuinfo_field(machine.root(), "model name").empty());
}

TEST_CASE("a field of cpuinfo is that of the first processor, by its whole name") {
  const MadeUpMachine machine;
  machine.file("proc/cpuinfo", ": odd\nmodel\t\t: 2\nempty\t:\nmodel name  :  A: B\n");
  CHECK(cpuinfo_field(machine.root(), "model") == "2");
  CHECK(cpuinfo_field(machine.root(), "model name") == "A: B");
  CHECK(cpuinfo_field(machine.root(), "empty").empty());
  CHECK(cpuinfo_field(machine.root(), "mod").empty());
}

TEST_CASE("a run on this machine may use as many cores as ranks share") {
  CHECK(core_facts("/", usable_cores()).count() == usable_core_count());
}

}  // namespace
}  // namespace dstrain
