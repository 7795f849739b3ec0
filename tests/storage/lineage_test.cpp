// Lines of checkpoints: which of a folder's are one run's, and what becomes of the others.
#include "runtime/storage/checkpoint/lineage.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "runtime/core/error.h"
#include "runtime/storage/checkpoint/checkpoint.h"
#include "runtime/storage/free_space.h"
#include "tests/storage/model_fixture.h"
#include "tests/storage/temp_dir.h"
#include "tests/storage/thread_ranks.h"

namespace dstrain {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

class Folder {
 public:
  std::string path() const { return dir_.path(); }
  void save(int64_t step, const Lineage& line) const {
    ThreadGroup group(1);
    ThreadComm comm(group, 0);
    FixtureRank rank(small_model(), 0, 1);
    rank.fill(step);
    save_checkpoint(path(),
                    {.step = step, .samples = 10 * step, .line = line, .facts = {{"a", "b"}}},
                    rank.state(), comm);
  }
  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& e : fs::directory_iterator(dir_ / "checkpoints"))
      if (e.is_directory()) names.push_back(e.path().filename().string());
    std::ranges::sort(names);
    return names;
  }
  const TempDir& dir() const { return dir_; }

 private:
  TempDir dir_;
};

using Names = std::vector<std::string>;

TEST_CASE("a line holds its own checkpoints and its ancestors' up to where it left them") {
  const Lineage first = new_lineage("job"), second = branch_of(first, 6),
                third = branch_of(second, 4);
  CHECK(first.id != second.id);
  CHECK((second.holds(second.id, 100) && second.holds(first.id, 6)));
  CHECK_FALSE((second.holds(first.id, 7) || first.holds(second.id, 1)));
  CHECK((third.holds(first.id, 4) && third.holds(second.id, 4)));
  CHECK_FALSE((third.holds(first.id, 5) || third.holds(second.id, 5)));
  for (const Lineage& line : {first, second, third}) CHECK(lineage_from(to_json(line)) == line);
}

TEST_CASE("a checkpoint keeps its line, its samples and its facts") {
  const Folder folder;
  const Lineage line = branch_of(new_lineage(), 3, "17");
  folder.save(4, line);
  const CheckpointInfo found = find_checkpoint(folder.path());
  CHECK(found.label.line == line);
  CHECK(found.label.samples == 40);
  CHECK(found.label.facts == std::map<std::string, std::string>{{"a", "b"}});
  CHECK(read_lineage(folder.dir() / "checkpoints") == line);
}

TEST_CASE("what is newest is decided by the line, even before the others were set aside") {
  const Folder folder;
  const Lineage first = new_lineage(), second = branch_of(first, 2);
  for (const int64_t step : {2, 4, 10}) folder.save(step, first);
  write_lineage(folder.dir() / "checkpoints", second);  // and then the run was killed
  const CheckpointInfo found = find_checkpoint(folder.path());
  CHECK(found.label.step == 2);
  REQUIRE(found.passed_over.size() == 2);
  CHECK_THAT(found.passed_over[0], Contains("step_10: it is of another run, or of a branch"));
  CHECK(continue_line(folder.path(), second, 2) ==
        Names{"step_10.abandoned-" + first.id, "step_4.abandoned-" + first.id});
  CHECK(find_checkpoint(folder.path()).passed_over.empty());
  CHECK(continue_line(folder.path(), second, 2).empty());
  folder.save(3, second);
  CHECK(find_checkpoint(folder.path()).label.step == 3);
}

TEST_CASE("nothing that is set aside is lost, however often") {
  const Folder folder;
  const Lineage first = new_lineage();
  folder.save(2, first);
  for (int i = 0; i < 3; ++i) {
    folder.save(4, first);
    continue_line(folder.path(), branch_of(first, 2), 2);
  }
  const std::string aside = "step_4.abandoned-" + first.id;
  CHECK(folder.names() == Names{"step_2", aside, aside + "-2", aside + "-3"});
  remove_checkpoints(folder.path());
  CHECK(folder.names() == Names{aside, aside + "-2", aside + "-3"});
  CHECK_THROWS_WITH(find_checkpoint(folder.path()), Contains("were set aside: name one"));
}

TEST_CASE("checkpoints from before there were lines are one line, and their descendants go on") {
  const Folder folder;
  for (const int64_t step : {2, 4}) folder.save(step, {});
  CHECK_FALSE(fs::exists(folder.dir() / "checkpoints/lineage.json"));
  CHECK(find_checkpoint(folder.path()).label.step == 4);
  const Lineage next = branch_of({}, 2);
  CHECK(continue_line(folder.path(), next, 2) == Names{"step_4.abandoned-old"});
  CHECK(find_checkpoint(folder.path()).label.step == 2);
}

TEST_CASE("old checkpoints of the line go, those of a multiple and of other lines stay") {
  const Folder folder;
  const Lineage line = new_lineage();
  folder.save(1, new_lineage());
  for (int64_t step = 2; step <= 7; ++step) folder.save(step, line);
  remove_old_checkpoints(folder.path(), line, 0, 0);
  CHECK(folder.names().size() == 7);
  remove_old_checkpoints(folder.path(), line, 2, 3);
  CHECK(folder.names() == Names{"step_1", "step_3", "step_6", "step_7"});
}

TEST_CASE("what does not find room is said with both sizes") {
  CHECK(lack_of_space("saving step 4", 1000, 1000, "out").empty());
  CHECK(lack_of_space("saving step 4", 1000, std::nullopt, "out").empty());
  CHECK(lack_of_space("saving step 4", 2000, 1000, "out") ==
        "saving step 4 needs 2.00 kB, and 1.00 kB are free in out");
  const Folder folder;
  CHECK(free_bytes(folder.path()).value_or(0) > 0);
  CHECK_FALSE(free_bytes(folder.dir() / "none"));
}

}  // namespace
}  // namespace dstrain
