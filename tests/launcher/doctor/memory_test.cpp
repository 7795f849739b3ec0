#include "launcher/doctor/memory.h"

#include <catch2/catch.hpp>

#include "launcher/doctor/huge_pages.h"
#include "runtime/core/error.h"
#include "tests/launcher/doctor/made_up_machine.h"

namespace dstrain {
namespace {

constexpr const char* kMeminfo =
    "MemTotal: 16000000 kB\nMemFree: 1 kB\nMemAvailable: 8000000 kB\nSwapTotal: 2000000 kB\n"
    "SwapFree: 1500000 kB\nCommitLimit: 10000000 kB\nCommitted_AS: 4000000 kB\n";

TEST_CASE("memory is what the kernel tells, and what control groups leave") {
  const MadeUpMachine machine;
  machine.file("proc/meminfo", kMeminfo);
  machine.file("proc/sys/vm/overcommit_memory", "1\n");
  machine.file("dev/shm/mine", "");
  const MemoryFacts facts = memory_facts(machine.root());
  CHECK(facts.physical == 16'000'000 * int64_t{1024});
  CHECK(facts.available.bytes == 8'000'000 * int64_t{1024});
  CHECK(facts.swap == 2'000'000 * int64_t{1024});
  CHECK(facts.free_swap == 1'500'000 * int64_t{1024});
  CHECK(facts.overcommit == 1);
  CHECK(facts.shm.value_or(0) >= facts.free_shm.value_or(1));
  const MachineLines lines = memory_lines(facts, 1, 0);
  REQUIRE(lines.size() == 4);
  CHECK(lines[0].subject == "memory");
  CHECK(lines[0].health == Health::ok);
  CHECK(lines[0].text == "8.19 GB available of 16.4 GB (MemAvailable in /proc/meminfo)");
  CHECK(lines[1].text == "1.54 GB free of 2.05 GB; what a run needs must be available without it");
  CHECK(lines[2].text == "vm.overcommit_memory is 1: memory counts when it is used");
  CHECK(lines[2].health == Health::ok);

  machine.file("proc/self/cgroup", "0::/job\n");
  machine.file("sys/fs/cgroup/job/memory.max", "4000000000\n");
  machine.file("sys/fs/cgroup/job/memory.current", "3000000000\n");
  const MachineLine limited = memory_lines(memory_facts(machine.root()), 1, 0)[0];
  CHECK(limited.health == Health::note);
  CHECK(limited.text.starts_with("1.00 GB available of 16.4 GB (the memory limit of "));
  CHECK(limited.values["available"] == 1'000'000'000);
}

TEST_CASE("a machine without meminfo is an error") {
  const MadeUpMachine machine;
  CHECK_THROWS_AS(memory_facts(machine.root()), RunError);
}

TEST_CASE("strict overcommit is a note with what may still be reserved") {
  const MadeUpMachine machine;
  machine.file("proc/meminfo", kMeminfo);
  machine.file("proc/sys/vm/overcommit_memory", "2\n");
  const MachineLine line =
      line_with(memory_lines(memory_facts(machine.root()), 1, 0), "overcommit", Health::note);
  CHECK(line.text ==
        "vm.overcommit_memory is 2: memory counts when it is reserved, and 6.14 GB may still be");
  CHECK(line.remedy.starts_with("sysctl vm.overcommit_memory=0"));
  CHECK(line.values["committed"] == 4'000'000 * int64_t{1024});
}

TEST_CASE("/dev/shm is compared with what Open MPI and NCCL put there") {
  MemoryFacts facts{
      .physical = 1 << 30, .available = {1 << 30, "a test"}, .shm = 64 << 20, .free_shm = 64 << 20};
  const auto health = [&facts](int ranks, int gpus) {
    const MachineLine line = memory_lines(facts, ranks, gpus).back();
    CHECK(line.subject == "/dev/shm");
    CHECK(line.remedy.empty() == (line.health == Health::ok));
    return line.health;
  };
  CHECK(health(16, 0) == Health::ok);
  CHECK(health(17, 0) == Health::note);
  CHECK(health(1, 1) == Health::ok);
  CHECK(health(2, 2) == Health::note);
  facts.shm = facts.free_shm = std::nullopt;
  CHECK(health(1, 0) == Health::note);
  CHECK(memory_lines(facts, 1, 0).back().values["total"].is_null());
}

TEST_CASE("no swap is no note") {
  const MemoryFacts facts{.physical = 100, .available = {100, "a test"}};
  CHECK(memory_lines(facts, 1, 0)[1].text == "none");
  CHECK(memory_lines(facts, 1, 0)[1].health == Health::ok);
}

TEST_CASE("huge pages are what the kernel's settings choose, those of the size first") {
  const MadeUpMachine machine;
  const std::string settings = "sys/kernel/mm/transparent_hugepage/";
  CHECK(huge_page_facts(machine.root()).own.empty());
  machine.file(settings + "enabled", "always [madvise] never\n");
  machine.file(settings + "shmem_enabled", "always within_size advise [never] deny force\n");
  CHECK(huge_page_facts(machine.root()).own == "madvise");
  CHECK(huge_page_facts(machine.root()).shared == "never");
  machine.file(settings + "hugepages-2048kB/enabled", "always [inherit] madvise never\n");
  machine.file(settings + "hugepages-2048kB/shmem_enabled",
               "always inherit within_size [advise] never\n");
  CHECK(huge_page_facts(machine.root()).own == "madvise");
  CHECK(huge_page_facts(machine.root()).shared == "advise");
  machine.file(settings + "hugepages-2048kB/enabled", "always inherit madvise [never]\n");
  CHECK(huge_page_facts(machine.root()).own == "never");
}

TEST_CASE("memory without huge pages is a note that says how to get them") {
  const MachineLines lines = huge_page_lines({.own = "madvise", .shared = "never"});
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].health == Health::ok);
  CHECK(lines[0].text.starts_with("memory of a rank's own has them (enabled is madvise)"));
  CHECK(lines[1].health == Health::note);
  CHECK(lines[1].text.starts_with("memory that ranks share has none (shmem_enabled is never)"));
  CHECK(lines[1].remedy ==
        "as root: echo advise >/sys/kernel/mm/transparent_hugepage/shmem_enabled");
  CHECK(huge_page_lines({.own = "always", .shared = "within_size"})[1].health == Health::ok);
  CHECK(huge_page_lines({.own = "always", .shared = "deny"})[1].health == Health::note);
  const MachineLine none = huge_page_lines({.own = "", .shared = ""})[0];
  CHECK(none.health == Health::note);
  CHECK(none.remedy == "a kernel with CONFIG_TRANSPARENT_HUGEPAGE has them");
}

}  // namespace
}  // namespace dstrain
