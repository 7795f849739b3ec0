#include "launcher/placement/process_limits.h"

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
constexpr uid_t kUser = 1000;

// A made-up machine: files below a temporary directory.
struct UserProcesses {
  void file(const std::string& path, const std::string& text) const {
    fs::create_directories(fs::path(dir / path).parent_path());
    dir.write(path, text);
  }
  void process(int pid, int64_t user, int threads) const {
    file("proc/" + std::to_string(pid) + "/status",
         fmt::format("Name:\tx\nUid:\t{}\t{}\t{}\t{}\nThreads:\t{}\n", user, user, user, user,
                     threads));
  }
  FreeProcesses free(int64_t most, uid_t user = kUser) const {
    return free_processes(most, user, dir.path());
  }
  TempDir dir;
};

TEST_CASE("the limit of a user counts all threads of that user's processes") {
  const UserProcesses machine;
  machine.file("proc/loadavg", "0.10 0.20 0.30 2/95 4711\n");
  machine.process(1, 0, 40);
  machine.process(20, kUser, 3);
  machine.process(21, kUser, 5);
  machine.process(22, kUser + 1, 47);
  machine.file("proc/self/status", "Uid:\t1000\nThreads:\t5\n");
  CHECK(machine.free(100).count == 92);
  CHECK(machine.free(100).source == "ulimit -u is 100, and this user has 8");
  CHECK(machine.free(5).count == 0);
  CHECK(machine.free(kNoLimit).count == kNoLimit);
  CHECK(machine.free(100, 0).count == kNoLimit);  // the kernel does not hold root to it
  // Far below the limit the threads of all users are enough to know.
  CHECK(machine.free(1000).count == 905);
}

TEST_CASE("a control group's limit of any version counts where it leaves less") {
  const UserProcesses machine;
  machine.file("proc/loadavg", "0.10 0.20 0.30 2/95 4711\n");
  machine.file("proc/self/cgroup", "0::/outer/inner\n");
  machine.file("sys/fs/cgroup/outer/inner/pids.max", "max\n");
  machine.file("sys/fs/cgroup/outer/inner/pids.current", "3\n");
  CHECK(machine.free(1000).count == 905);
  machine.file("sys/fs/cgroup/outer/pids.max", "64\n");
  machine.file("sys/fs/cgroup/outer/pids.current", "60\n");
  CHECK(machine.free(1000).count == 4);
  CHECK(machine.free(1000, 0).count == 4);
  CHECK(machine.free(kNoLimit).source ==
        (machine.dir / "sys/fs/cgroup/outer/pids.max") + " is 64, and 60 are there");
  machine.file("proc/self/cgroup", "4:pids:/first\n");
  machine.file("sys/fs/cgroup/pids/first/pids.max", "10\n");
  machine.file("sys/fs/cgroup/pids/first/pids.current", "12\n");
  CHECK(machine.free(1000).count == 0);
}

TEST_CASE("what is missing is said with the limit, and with what would do") {
  const ProcessNeeds needs = process_needs(4, 2, 0);
  CHECK(lacks({}, needs, "here").empty());
  CHECK(lacks({needs.open_files, {needs.processes, ""}}, needs, "here").empty());
  const auto both = lacks({20, {7, "ulimit -u is 9, and this user has 2"}}, {92, 32}, "there");
  REQUIRE(both.size() == 2);
  CHECK(both[0].what == "files");
  CHECK(both[0].text ==
        "a process may open 20 files there, and needs 92: raise the limit (ulimit -n 92, or "
        "/etc/security/limits.conf)");
  CHECK(both[1].what == "processes");
  CHECK(both[1].text ==
        "the run needs 32 processes and threads there, and 7 may still be started (ulimit -u is 9, "
        "and this user has 2): raise the limit, or use fewer ranks or threads (OMP_NUM_THREADS)");
  CHECK(process_needs(8, 2, 0).open_files > needs.open_files);
  CHECK(process_needs(4, 3, 0).processes == needs.processes + 4);
  CHECK(process_needs(4, 2, 3).open_files > needs.open_files);
}

}  // namespace
}  // namespace dstrain
