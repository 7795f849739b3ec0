#include "launcher/placement/machine.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// A made-up machine: files below a temporary directory.
struct Machine {
  Machine() {
    std::string name = (fs::temp_directory_path() / "dstrain_machine_XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    root = name;
    file("proc/meminfo", "MemTotal: 9000 kB\nMemFree: 10 kB\nMemAvailable:    8000 kB\n");
  }
  ~Machine() { fs::remove_all(root); }
  void file(const std::string& path, const std::string& text) const {
    fs::create_directories((root / path).parent_path());
    std::ofstream(root / path) << text;
  }
  fs::path root;
};

TEST_CASE("without a cgroup the kernel's own estimate counts") {
  const Machine machine;
  CHECK(available_memory(machine.root).bytes == 8000 * 1024);
  CHECK(available_memory(machine.root).source == "MemAvailable in /proc/meminfo");
}

TEST_CASE("a version 2 limit of any group around the process counts, file pages do not") {
  const Machine machine;
  machine.file("proc/self/cgroup", "0::/outer/inner\n");
  const std::string base = "sys/fs/cgroup/outer";
  machine.file(base + "/inner/memory.max", "max\n");
  machine.file(base + "/inner/memory.current", "100\n");
  machine.file(base + "/memory.max", "1000000\n");
  machine.file(base + "/memory.current", "700000\n");
  machine.file(base + "/memory.stat", "anon 1\ninactive_file 300000\n");
  const MemoryOffer offer = available_memory(machine.root);
  CHECK(offer.bytes == 600000);
  CHECK(offer.source.find("outer, 1.00 MB") != std::string::npos);
}

TEST_CASE("a version 1 limit counts, where a container sees its group as the root too") {
  const Machine machine;
  machine.file("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:memory:/docker/123\n0::/\n");
  const std::string base = "sys/fs/cgroup/memory";
  machine.file(base + "/memory.limit_in_bytes", "2000000\n");
  machine.file(base + "/memory.usage_in_bytes", "500000\n");
  machine.file(base + "/memory.stat", "cache 5\ntotal_inactive_file 100000\n");
  CHECK(available_memory(machine.root).bytes == 1600000);
}

TEST_CASE(
    "kills are those of the process's own cgroup, not of the machine or of a cgroup around it") {
  const Machine machine;
  const auto kills = [&machine] { return kills_in(kill_counter(7, machine.root)); };
  const std::string mount = "sys/fs/cgroup/";
  machine.file("proc/vmstat", "pgfault 9\noom_kill 50\n");
  SECTION("version 2") {
    machine.file("proc/7/cgroup", "0::/slice/run.scope/leaf\n");
    machine.file(mount + "cgroup.controllers", "cpu memory\n");
    machine.file(mount + "slice/memory.events", "oom_kill 40\n");
    machine.file(mount + "slice/run.scope/memory.events", "low 0\noom 4\noom_kill 3\n");
    CHECK(kills() == 3);  // the leaf has no memory controller
  }
  SECTION("version 1") {
    machine.file("proc/7/cgroup", "5:cpu,cpuacct:/x\n4:memory:/jobs/7\n0::/\n");
    machine.file(mount + "memory/memory.oom_control", "oom_kill 40\n");
    machine.file(mount + "memory/jobs/7/memory.oom_control", "under_oom 0\noom_kill 2\n");
    CHECK(kills() == 2);
  }
  SECTION("a container that sees its own group as the root") {
    machine.file("proc/7/cgroup", "0::/docker/123\n");
    machine.file(mount + "memory.events", "oom_kill 1\n");
    CHECK(kills() == 1);
  }
  SECTION("the root of version 2 does not count its own") {
    machine.file("proc/7/cgroup", "0::/\n");
    machine.file(mount + "cgroup.controllers", "cpuset cpu io memory hugetlb\n");
    CHECK(kill_counter(7, machine.root).empty());
    CHECK(kills() == 0);
  }
  SECTION("without memory cgroups there is no other than the machine's") {
    machine.file("proc/7/cgroup", "0::/\n");
    machine.file(mount + "cgroup.controllers", "cpu\n");
    CHECK(kills() == 50);
  }
}

TEST_CASE("a group over its limit offers nothing, not less") {
  const Machine machine;
  machine.file("proc/self/cgroup", "0::/\n");
  machine.file("sys/fs/cgroup/memory.max", "1000\n");
  machine.file("sys/fs/cgroup/memory.current", "5000\n");
  CHECK(available_memory(machine.root).bytes == 0);
}

TEST_CASE("no limit is no limit") {
  const Machine machine;
  machine.file("proc/self/cgroup", "4:memory:/\n");
  machine.file("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  machine.file("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n");
  CHECK(available_memory(machine.root).bytes == 8000 * 1024);
}

TEST_CASE("a machine without meminfo is an error that names the file") {
  const Machine machine;
  const fs::path none = machine.root / "none";
  CHECK_THROWS_AS(available_memory(none), RunError);
  CHECK_THROWS_WITH(available_memory(none),
                    "cannot read MemAvailable from " + (none / "proc/meminfo").string());
}

TEST_CASE("this machine offers memory") {
  CHECK(available_memory().bytes > 0);
}

TEST_CASE("this machine is known by its own names alone") {
  CHECK(is_this_machine("localhost"));
  CHECK_FALSE(is_this_machine("no-such-host"));
}

}  // namespace
}  // namespace dstrain
