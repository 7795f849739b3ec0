// The lock of an output directory: its holder, its release at the end of the process, and forks that share it.
#include "runtime/storage/output_lock.h"

#include <unistd.h>

#include <catch2/catch.hpp>

#include "runtime/core/error.h"
#include "tests/storage/waiting_process.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;

TEST_CASE(
    "a directory that another process has is refused by its name, and free when that is killed") {
  const TempDir dir;
  WaitingProcess holder([&dir] { new OutputLock(dir.path()); });  // held until the process ends
  const std::string who = "pid " + std::to_string(holder.pid()) + " on ";
  CHECK_THROWS_WITH(OutputLock(dir.path()), Contains(dir.path()) && Contains(who));
  CHECK_THROWS_AS(refuse_if_locked(dir.path()), UserError);
  holder.kill();
  CHECK_NOTHROW(refuse_if_locked(dir.path()));
  CHECK_NOTHROW(OutputLock(dir.path()));
}

TEST_CASE("a lock says whose it is, as long as its directory is at the path") {
  const TempDir dir;
  std::filesystem::create_directory(dir / "out");
  const OutputLock lock(dir / "out");
  CHECK(lock.holder().starts_with("pid " + std::to_string(::getpid()) + " on "));
  CHECK(is_locked_by(dir / "out", lock.holder()));
  CHECK_FALSE(is_locked_by(dir / "out", "pid 1 on another"));
  std::filesystem::rename(dir / "out", dir / "old");
  CHECK_FALSE(is_locked_by(dir / "out", lock.holder()));
  std::filesystem::create_directory(dir / "out");
  CHECK_FALSE(is_locked_by(dir / "out", lock.holder()));
}

TEST_CASE("a lock that its owner lets go of is free") {
  const TempDir dir;
  { const OutputLock lock(dir.path()); }
  CHECK_NOTHROW(OutputLock(dir.path()));
}

TEST_CASE("a rank that was forked keeps the lock while it lives") {
  const TempDir dir;
  auto lock = std::make_unique<OutputLock>(dir.path());
  WaitingProcess rank([] {});
  lock.reset();
  CHECK_THROWS_AS(OutputLock(dir.path()), UserError);
  rank.kill();
  CHECK_NOTHROW(OutputLock(dir.path()));
}

TEST_CASE("a link in the place of the lock is refused, and its target stays") {
  TempDir dir;
  const std::string target = dir.write("target", "precious");
  std::filesystem::create_symlink(target, dir / ".dstrain.lock");
  CHECK_THROWS_WITH(OutputLock(dir.path()), Contains(".dstrain.lock: it is a symbolic link"));
  CHECK_THROWS_AS(OutputLock(dir.path()), UserError);
  CHECK_NOTHROW(refuse_if_locked(dir.path()));
  CHECK(bytes_of_file(target) == "precious");
}

TEST_CASE("a file with another name in the place of the lock is refused, and stays as it is") {
  TempDir dir;
  const std::string target = dir.write("target", "precious");
  std::filesystem::create_hard_link(target, dir / ".dstrain.lock");
  CHECK_THROWS_WITH(OutputLock(dir.path()),
                    Contains(".dstrain.lock: the file has 2 names (hard links)"));
  CHECK(bytes_of_file(target) == "precious");
}

TEST_CASE("a directory that is not there is in nobody's use") {
  const TempDir dir;
  CHECK_NOTHROW(refuse_if_locked(dir / "none"));
  CHECK_FALSE(std::filesystem::exists(dir / "none"));
}

}  // namespace
}  // namespace dstrain
