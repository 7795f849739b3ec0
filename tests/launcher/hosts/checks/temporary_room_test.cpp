#include "launcher/hosts/checks/temporary_room.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Matchers::Contains;

TEST_CASE("room for temporary files is looked at where the run keeps them, and told") {
  TempDir dir;
  const TemporaryRoom room = temporary_room(dir / "dstrain-0123456789abcdef");
  CHECK(room.directory == dir.path());
  CHECK(room.free.value() > 0);
  CHECK(room.problem.empty());
  CHECK(std::filesystem::is_empty(dir.path()));
  const auto told = nlohmann::json(room).get<TemporaryRoom>();
  CHECK(told.directory == room.directory);
  CHECK(told.free == room.free);
  const TemporaryRoom none = temporary_room(dir / "none/dstrain-0123456789abcdef");
  CHECK_THAT(
      lack_of_room(nlohmann::json(none).get<TemporaryRoom>(), 1),
      Contains("no temporary file can be made in " + dir.path() + "/none there: No such file"));
}

TEST_CASE("a host with too little room for its ranks is told what it has and needs") {
  const TemporaryRoom room{"/tmp", needed_room(2), ""};
  CHECK(lack_of_room(room, 2).empty());
  CHECK(lack_of_room(room, 3) ==
        "/tmp there has 21.0 MB left, and temporary files of 3 ranks need 25.2 MB: free space "
        "there, or let TMPDIR name a directory with more, at the same path on all hosts");
  CHECK(lack_of_room({"/tmp", std::nullopt, ""}, 3).empty());
}

}  // namespace
}  // namespace dstrain
