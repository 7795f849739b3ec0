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

// A shell script by the daemon's name, which does as Open MPI's does: it forks, writes the fork's process id to a file,
// and ends once it is told to.
struct ForkingDaemon {
  TempDir own;
  fs::path folder = own.path();
  std::string run = (folder / "run").string();
  Child process;
  bool killed = false;  // another process may have the fork's number then

  ForkingDaemon() : process({write_script(folder), run}, {}) {}
  ~ForkingDaemon() { kill_fork(); }

  static std::string write_script(const fs::path& folder) {
    const fs::path script = folder / "orted";
    std::ofstream(script) << "#!/bin/bash\n"
                          << "(while true; do sleep 0.1; done) &\n"
                          << "echo $! >" << (folder / "fork.new") << "\n"
                          << "mv " << (folder / "fork.new") << " " << (folder / "fork") << "\n"
                          << "until [[ -e " << (folder / "end") << " ]]; do sleep 0.05; done\n";
    fs::permissions(script, fs::perms::owner_all);
    return script.string();
  }

  pid_t fork() const {
    pid_t pid = 0;
    std::ifstream(folder / "fork") >> pid;
    return pid;
  }
  void kill_fork() {
    const pid_t pid = std::exchange(killed, true) ? 0 : fork();
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

}  // namespace
}  // namespace dstrain
