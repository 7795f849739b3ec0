#include "launcher/ranks/dead_runs.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "launcher/process/child.h"
#include "launcher/ranks/run_directory.h"
#include "tests/launcher/support/processes.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

TEST_CASE("what a lost run starts a moment after its end is cleared too") {
  const TempDir folder;
  const std::string run = folder.path() + "/dstrain-0123456789abcdef";
  const std::string files = mpi_directory(run);
  Child late(
      [&] {
        ::usleep(50'000);
        ::mkdir(files.c_str(), 0700);
        return ::execl("/bin/sleep", run.c_str(), "60", nullptr);
      },
      {});
  clear_lost_run(run);
  CHECK_FALSE(std::filesystem::exists(files));
  REQUIRE(wait_until([&] { return late.ended().has_value(); }));
  CHECK(WTERMSIG(*late.ended()) == SIGKILL);
}

}  // namespace
}  // namespace dstrain
