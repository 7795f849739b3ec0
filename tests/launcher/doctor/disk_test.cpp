#include "launcher/doctor/disk.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/launcher/doctor/made_up_machine.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRun = "/tmp/dstrain-0123456789abcdef";

TEST_CASE("a directory is probed as a run writes to it, and nothing is left there") {
  const TempDir folder;
  const DiskFacts facts = probe_output(folder / "new/out", {}, kRun);
  CHECK(facts.write_problem.empty());
  CHECK(facts.offload_problem.empty());
  CHECK_FALSE(facts.file_system.empty());
  CHECK_FALSE(facts.drive.empty());
  CHECK(facts.free.value_or(0) > 0);
  CHECK(fs::is_empty(folder.path()));
  const DiskFacts there = probe_directory(folder.path(), {.block_size = 4096, .queue_depth = 2});
  CHECK(there.write_problem.empty());
  CHECK(there.offload_problem.empty());
  CHECK(fs::is_empty(folder.path()));
}

TEST_CASE("a directory that cannot be made or written is a problem that says why") {
  const TempDir folder;
  folder.write("file", "x");
  const DiskFacts facts = probe_output(folder / "file/out", {}, kRun);
  CHECK(facts.write_problem.starts_with("cannot make the output directory " + folder.path() +
                                        "/file/out: "));
  const MachineLines lines = disk_lines("output", facts);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].health == Health::problem);
  CHECK(lines[0].text == facts.write_problem);
  CHECK(lines[0].values["writable"] == false);
  CHECK_THAT(probe_directory(folder / "none/deeper", {}).write_problem,
             Catch::Contains(folder / "none"));
  CHECK(probe_directory(folder / "none", {}).write_problem.empty());
  CHECK_FALSE(fs::exists(folder / "none"));
}

TEST_CASE("space, file system and offload have lines of their own") {
  DiskFacts facts{.directory = "/data/out",
                  .file_system = "xfs",
                  .drive = "/dev/sda1, mounted at /data",
                  .free = 5'000'000'000,
                  .direct = true};
  const MachineLines lines = disk_lines("output", facts);
  REQUIRE(lines.size() == 2);
  CHECK(count_of(lines, Health::ok) == 2);
  CHECK(lines[0].text == "/data/out is writable, xfs on /dev/sda1, mounted at /data, 5.00 GB free");
  CHECK(lines[0].values["free"] == 5'000'000'000);
  CHECK(lines[1].text ==
        "offload to nvme works there: asynchronous (libaio), past the page cache (O_DIRECT)");
  facts.free = 900'000'000;
  CHECK(disk_lines("output", facts)[0].remedy.starts_with("a checkpoint has 12 bytes and more"));
  facts.file_system = "tmpfs";
  CHECK(disk_lines("output", facts)[0].remedy.starts_with("it is in memory"));
  facts.direct = false;
  CHECK(disk_lines("output", facts)[1].health == Health::note);
  CHECK(disk_lines("output", facts)[1].values["direct"] == false);
}

TEST_CASE("a lack of asynchronous I/O is a problem where a run offloads to, elsewhere a note") {
  const DiskFacts facts{.directory = "/data", .direct = true, .offload_problem = "no io_setup"};
  const MachineLine elsewhere = disk_lines("output", facts)[1];
  CHECK(elsewhere.health == Health::note);
  CHECK(elsewhere.text == "offload to nvme does not work there: no io_setup");
  CHECK_FALSE(elsewhere.remedy.empty());
  CHECK(disk_lines("nvme", facts)[1].health == Health::problem);
}

}  // namespace
}  // namespace dstrain
