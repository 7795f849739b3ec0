#include "launcher/hosts/agent/starter_watch.h"

#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "launcher/process/child.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

// Waits half a minute at most until the condition holds.
bool soon(const std::function<bool()>& condition) {
  for (int i = 0; i < 600; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  return false;
}

// A shell script by the daemon's name, which does as Open MPI's does: it forks, writes the process ids of the fork and of
// the rank that the fork starts to files, and ends once it is told to.
struct ForkingDaemon {
  TempDir own;
  fs::path folder = own.path();
  std::string run = (folder / "run").string();
  Child process;
  bool killed = false;  // other processes may have their numbers then

  ForkingDaemon() : process({write_script(folder), run}, {}) {}
  ~ForkingDaemon() { kill_fork(); }

  static std::string write_script(const fs::path& folder) {
    const fs::path script = folder / "orted";
    std::ofstream(script) << "#!/bin/bash\n"
                          << "(sleep 1000 & echo $! >" << (folder / "rank") << "; wait) &\n"
                          << "echo $! >" << (folder / "fork.new") << "\n"
                          << "mv " << (folder / "fork.new") << " " << (folder / "fork") << "\n"
                          << "until [[ -e " << (folder / "end") << " ]]; do sleep 0.05; done\n";
    fs::permissions(script, fs::perms::owner_all);
    return script.string();
  }

  pid_t fork() const { return written_in("fork"); }
  pid_t rank() const { return written_in("rank"); }
  pid_t written_in(const char* file) const {
    pid_t pid = 0;
    std::ifstream(folder / file) >> pid;
    return pid;
  }
  void kill_fork() {
    if (std::exchange(killed, true)) return;
    for (const pid_t pid : {fork(), rank()})
      if (pid != 0) ::kill(pid, SIGKILL);
  }
  void end() const { std::ofstream(folder / "end") << "now"; }
};

TEST_CASE("a daemon that forks and ends lives on as its fork") {
  ForkingDaemon daemon;
  REQUIRE(soon([&] { return daemon.fork() != 0; }));
  StarterWatch watch(daemon.run);
  const std::vector<RankReport> ranks(2);  // none has joined
  const auto reports = [&](pid_t pid) {
    return soon([&] { return watch.update(ranks), watch.report().pid == pid; });
  };
  REQUIRE(reports(daemon.process.pid()));
  CHECK_FALSE(watch.report().gone);

  daemon.end();
  CHECK(reports(daemon.fork()));
  CHECK_FALSE(watch.report().gone);

  const pid_t last = daemon.fork();
  daemon.kill_fork();
  CHECK(soon([&] { return watch.update(ranks), watch.report().gone; }));
  CHECK(watch.report().pid == last);
}

TEST_CASE("the parent of a rank is the daemon, though the process that forked it has not ended") {
  ForkingDaemon daemon;
  REQUIRE(soon([&] { return daemon.fork() != 0 && daemon.rank() != 0; }));
  StarterWatch watch(daemon.run);
  RankReport rank;
  rank.pid = daemon.rank();
  rank.state = RankState::running;
  const std::vector<RankReport> ranks{rank};
  watch.update(ranks);
  CHECK(watch.report().pid == daemon.fork());

  daemon.end();
  REQUIRE(soon([&] { return daemon.process.ended().has_value(); }));
  watch.update(ranks);
  CHECK(watch.report().pid == daemon.fork());
  CHECK_FALSE(watch.report().gone);
}

}  // namespace
}  // namespace dstrain
