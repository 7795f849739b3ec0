#include "runtime/core/cpu.h"

#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <numeric>

#include "runtime/core/error.h"
#include "runtime/core/threads/core_share.h"
#include "runtime/core/threads/parts.h"

namespace dstrain {
namespace {

// A temporary directory with the files of the kernel about cgroups.
class FakeCgroup {
 public:
  FakeCgroup() : root_(std::filesystem::temp_directory_path() / "dstrain_cgroup_XXXXXX") {
    std::string name = root_.string();
    REQUIRE(::mkdtemp(name.data()));
    root_ = name;
  }
  ~FakeCgroup() { std::filesystem::remove_all(root_); }
  FakeCgroup(const FakeCgroup&) = delete;
  FakeCgroup& operator=(const FakeCgroup&) = delete;

  const std::filesystem::path& root() const { return root_; }
  void write(const std::string& file, const std::string& text) {
    std::filesystem::create_directories((root_ / file).parent_path());
    std::ofstream(root_ / file) << text;
  }

 private:
  std::filesystem::path root_;
};

std::vector<int> cores(int n) {
  std::vector<int> all(static_cast<size_t>(n));
  std::iota(all.begin(), all.end(), 0);
  return all;
}

TEST_CASE("a cgroup's CPU quota counts in cores, rounded up") {
  FakeCgroup cgroup;
  REQUIRE(cgroup_core_limit(cgroup.root()) == 0);
  cgroup.write("proc/self/cgroup", "0::/\n");
  REQUIRE(cgroup_core_limit(cgroup.root()) == 0);
  const std::string file = "sys/fs/cgroup/cpu.max";
  cgroup.write(file, "max 100000\n");
  REQUIRE(cgroup_core_limit(cgroup.root()) == 0);
  cgroup.write(file, "150000 100000\n");
  REQUIRE(cgroup_core_limit(cgroup.root()) == 2);
  cgroup.write(file, "400000 100000\n");
  REQUIRE(cgroup_core_limit(cgroup.root()) == 4);
  cgroup.write(file, "1000 100000\n");
  REQUIRE(cgroup_core_limit(cgroup.root()) == 1);
}

TEST_CASE("the first version of cgroups is understood too") {
  FakeCgroup cgroup;
  cgroup.write("proc/self/cgroup", "4:memory:/\n3:cpu,cpuacct:/\n");
  cgroup.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  cgroup.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  REQUIRE(cgroup_core_limit(cgroup.root()) == 0);
  cgroup.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "250000\n");
  REQUIRE(cgroup_core_limit(cgroup.root()) == 3);
}

TEST_CASE("the smallest quota of a cgroup and those around it counts") {
  FakeCgroup cgroup;
  cgroup.write("proc/self/cgroup", "0::/slice/job\n");
  cgroup.write("sys/fs/cgroup/slice/job/cpu.max", "300000 100000\n");
  REQUIRE(cgroup_core_limit(cgroup.root()) == 3);
  cgroup.write("sys/fs/cgroup/slice/cpu.max", "200000 100000\n");
  REQUIRE(cgroup_core_limit(cgroup.root()) == 2);
  cgroup.write("proc/self/cgroup", "0::/of/the/host\n");  // not mounted here
  REQUIRE(cgroup_core_limit(cgroup.root()) == 0);
}

TEST_CASE("OMP_NUM_THREADS is a number of threads, or an error that names it") {
  const char* const before = std::getenv("OMP_NUM_THREADS");
  const std::string kept = before ? before : "";
  const auto asked = [](const char* text) {
    ::setenv("OMP_NUM_THREADS", text, 1);
    return threads_asked_for();
  };
  CHECK(asked("3") == 3);
  CHECK(asked("4,2") == 4);
  CHECK(asked("") == 0);
  for (const char* text : {"abc", "0", "-1", "1.5", "2x", "100000", "99999999999999999999"})
    CHECK_THROWS_WITH(asked(text), Catch::StartsWith(fmt::format(
                                       "OMP_NUM_THREADS is \"{}\": expected the threads of a rank, "
                                       "from 1 to 4096",
                                       text)));
  ::unsetenv("OMP_NUM_THREADS");
  CHECK(threads_asked_for() == 0);
  if (before) ::setenv("OMP_NUM_THREADS", kept.c_str(), 1);
}

TEST_CASE("ranks of a host share its cores evenly and never overlap") {
  REQUIRE(cores_of_rank(cores(4), 0, 2) == std::vector<int>{0, 1});
  REQUIRE(cores_of_rank(cores(4), 1, 2) == std::vector<int>{2, 3});
  REQUIRE(cores_of_rank(cores(5), 1, 2) == std::vector<int>{2, 3, 4});
  REQUIRE(cores_of_rank({3, 8, 9}, 1, 3) == std::vector<int>{8});
  REQUIRE(cores_of_rank(cores(3), 0, 1) == cores(3));
}

TEST_CASE("more ranks than cores are not pinned") {
  for (int r = 0; r < 4; ++r) REQUIRE(cores_of_rank(cores(2), r, 4) == cores(2));
  REQUIRE_THROWS_WITH(cores_of_rank(cores(2), 2, 2), "rank 2 of 2 on this host");
}

TEST_CASE("a rank has at least one thread, and no more than its share of the cores") {
  const int all = usable_core_count();
  REQUIRE(all >= 1);
  REQUIRE(all <= static_cast<int>(usable_cores().size()));
  REQUIRE(threads_per_rank(1) == all);
  REQUIRE(threads_per_rank(all) == 1);
  REQUIRE(threads_per_rank(100 * all) == 1);
}

TEST_CASE("taking a share binds the process and sets the number of threads") {
  const std::vector<int> before = usable_cores();
  const auto ranks = static_cast<int>(before.size());
  // In a child process, so that this one keeps its cores.
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    const bool bound = take_core_share(ranks - 1, ranks) == 1 &&
                       usable_cores() == std::vector<int>{before.back()} && thread_count() == 1;
    const bool chosen = take_core_share(0, 1, 3) == 3 && thread_count() == 3;
    ::_exit(bound && chosen ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  REQUIRE(WEXITSTATUS(status) == 0);
}

TEST_CASE("lists of cores are numbers and ranges, ascending and apart") {
  using Cores = std::vector<int>;
  CHECK(parse_cores("0") == Cores{0});
  CHECK(parse_cores("0,2-4,6") == Cores{0, 2, 3, 4, 6});
  CHECK(parse_cores("5-5") == Cores{5});
  for (const char* text : {"", ",", "1,", "2,1", "1-", "-1", "3-2", "1-3,3", "1;2", "1 "})
    CHECK_FALSE(parse_cores(text).has_value());
}

TEST_CASE("hardware threads of one core count once, and a NUMA node is found by its cores") {
  FakeCgroup machine;
  CHECK(physical_cores({0, 1, 2}, machine.root()) == std::vector<int>{0, 1, 2});
  CHECK_FALSE(memory_node_of({0}, machine.root()).has_value());
  for (const auto& [core, siblings] :
       {std::pair{"0", "0,4"}, {"1", "1,5"}, {"4", "0,4"}, {"5", "1,5"}})
    machine.write(std::string("cpu/cpu") + core + "/topology/thread_siblings_list", siblings);
  CHECK(physical_cores({0, 1, 4, 5}, machine.root()) == std::vector<int>{0, 1});
  CHECK(physical_cores({4, 5}, machine.root()) == std::vector<int>{4, 5});

  machine.write("node/online", "0\n");
  machine.write("node/node0/cpulist", "0-7\n");
  CHECK_FALSE(memory_node_of({0}, machine.root()).has_value());
  machine.write("node/online", "0-1\n");
  machine.write("node/node0/cpulist", "0-1,4-5\n");
  machine.write("node/node1/cpulist", "2-3,6-7\n");
  CHECK(memory_node_of({0, 5}, machine.root()) == 0);
  CHECK(memory_node_of({2, 3}, machine.root()) == 1);
  CHECK_FALSE(memory_node_of({1, 2}, machine.root()).has_value());
}

}  // namespace
}  // namespace dstrain
