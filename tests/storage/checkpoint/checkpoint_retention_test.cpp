// Which checkpoints of a folder belong to the run, and what happens to the others.
#include "runtime/storage/checkpoint/checkpoint_retention.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <filesystem>

#include "runtime/core/error.h"
#include "runtime/storage/checkpoint/checkpoint_choice.h"
#include "runtime/storage/checkpoint/checkpoint_save.h"
#include "tests/storage/checkpoint/state_fixture.h"
#include "tests/storage/checkpoint/threads_as_ranks.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;

class Folder {
 public:
  std::string path() const { return dir_.path(); }
  void save(int64_t step, const Lineage& lineage, bool end = false) const {
    ThreadGroup group(1);
    ThreadComm comm(group, 0);
    FixtureRank rank(small_model(), 0, 1);
    rank.fill(step);
    save_checkpoint(
        path(),
        {.step = step, .samples = 10 * step, .lineage = lineage, .facts = {{"a", "b"}}, .end = end},
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

TEST_CASE("a checkpoint keeps its lineage, its samples and its facts") {
  const Folder folder;
  const Lineage lineage = branch_of(new_lineage(), 3, "17");
  folder.save(4, lineage);
  const CheckpointInfo found = find_checkpoint(folder.path());
  CHECK(found.label.lineage == lineage);
  CHECK(found.label.samples == 40);
  CHECK(found.label.facts == std::map<std::string, std::string>{{"a", "b"}});
  CHECK(read_lineage(folder.dir() / "checkpoints") == lineage);
}

TEST_CASE("the newest checkpoint is decided by the lineage, even before the others were renamed") {
  const Folder folder;
  const Lineage first = new_lineage(), second = branch_of(first, 2);
  for (const int64_t step : {2, 4, 10}) folder.save(step, first);
  write_lineage(folder.dir() / "checkpoints", second);  // and then the run was killed
  const CheckpointInfo found = find_checkpoint(folder.path());
  CHECK(found.label.step == 2);
  REQUIRE(found.passed_over.size() == 2);
  CHECK_THAT(found.passed_over[0], Contains("step_10: it belongs to another run, or to a branch"));
  CHECK(continue_lineage(folder.path(), second, 2) ==
        Names{"step_10.abandoned-" + first.id, "step_4.abandoned-" + first.id});
  CHECK(find_checkpoint(folder.path()).passed_over.empty());
  CHECK(continue_lineage(folder.path(), second, 2).empty());
  folder.save(3, second);
  CHECK(find_checkpoint(folder.path()).label.step == 3);
}

TEST_CASE("no abandoned checkpoint is lost, however often a step is abandoned") {
  const Folder folder;
  const Lineage first = new_lineage();
  folder.save(2, first);
  for (int i = 0; i < 3; ++i) {
    folder.save(4, first);
    continue_lineage(folder.path(), branch_of(first, 2), 2);
  }
  const std::string abandoned = "step_4.abandoned-" + first.id;
  CHECK(folder.names() == Names{"step_2", abandoned, abandoned + "-2", abandoned + "-3"});
  remove_checkpoints(folder.path());
  CHECK(folder.names() == Names{abandoned, abandoned + "-2", abandoned + "-3"});
  CHECK_THROWS_WITH(
      find_checkpoint(folder.path()),
      Contains("only abandoned ones (" + abandoned + ", ") && Contains("): name one"));
}

TEST_CASE("checkpoints without a lineage form one lineage, which a resumed run continues") {
  const Folder folder;
  for (const int64_t step : {2, 4}) folder.save(step, {});
  CHECK_FALSE(fs::exists(folder.dir() / "checkpoints/lineage.json"));
  CHECK(find_checkpoint(folder.path()).label.step == 4);
  const Lineage next = branch_of({}, 2);
  CHECK(continue_lineage(folder.path(), next, 2) == Names{"step_4.abandoned-old"});
  CHECK(find_checkpoint(folder.path()).label.step == 2);
}

TEST_CASE(
    "old checkpoints of the lineage are removed, those of a multiple and of other lineages stay") {
  const Folder folder;
  const Lineage lineage = new_lineage();
  folder.save(1, new_lineage());
  for (int64_t step = 2; step <= 7; ++step) folder.save(step, lineage);
  remove_old_checkpoints(folder.path(), lineage, 0, 0);
  CHECK(folder.names().size() == 7);
  remove_old_checkpoints(folder.path(), lineage, 2, 3);
  CHECK(folder.names() == Names{"step_1", "step_3", "step_6", "step_7"});
}

TEST_CASE("the checkpoint of the best validation stays, and keeps what is known of it") {
  const Folder folder;
  const Lineage lineage = new_lineage();
  for (const int64_t step : {2, 4, 6, 8}) folder.save(step, lineage);
  CHECK(remove_old_checkpoints(folder.path(), lineage, 1, 0, 4) == 2);
  CHECK(folder.names() == Names{"step_4", "step_8"});
  CHECK(remove_old_checkpoints(folder.path(), lineage, 1, 0, 8) == 1);
  CHECK(folder.names() == Names{"step_8"});
  CHECK(checkpoint_directory(folder.path(), 8) == (folder.dir() / "checkpoints/step_8"));
  CHECK_FALSE(find_checkpoint(folder.path()).label.best);

  const BestValidation best{.metric = "ema_loss", .step = 8, .value = 0.1, .without_better = 2};
  Manifest manifest;
  manifest.label.best = best;
  CHECK(parse_manifest(manifest_text(manifest), "m").label.best == best);
}

TEST_CASE("what the end of a run saved takes no other one's place, and goes for newer ones") {
  const Folder folder;
  const Lineage lineage = new_lineage();
  for (const int64_t step : {3, 6}) folder.save(step, lineage);
  folder.save(7, lineage, true);
  remove_old_checkpoints(folder.path(), lineage, 1, 0);
  CHECK(folder.names() == Names{"step_6", "step_7"});
  folder.save(9, lineage);
  remove_old_checkpoints(folder.path(), lineage, 1, 0);
  CHECK(folder.names() == Names{"step_9"});
}

TEST_CASE("a checkpoint that is half removed is a leftover, which the next save clears") {
  const Folder folder;
  const Lineage lineage = new_lineage();
  for (const int64_t step : {2, 4}) folder.save(step, lineage);
  const fs::path old = folder.dir() / "checkpoints/step_2";
  // What nobody may remove, unless the user is root.
  fs::create_directories(old / "held/by");
  fs::permissions(old / "held", fs::perms::owner_read | fs::perms::owner_exec);
  try {
    remove_old_checkpoints(folder.path(), lineage, 1, 0);
  } catch (const RunError&) {
    CHECK(folder.names() == Names{"step_2.tmp", "step_4"});
    fs::permissions(folder.dir() / "checkpoints/step_2.tmp/held", fs::perms::owner_all);
  }
  folder.save(6, lineage);
  CHECK(folder.names() == Names{"step_4", "step_6"});
}

TEST_CASE("the checkpoint that a run goes on from is not removed, by whatever path it is named") {
  const Folder folder;
  const Lineage lineage = new_lineage();
  for (const int64_t step : {2, 4}) folder.save(step, lineage, step == 4);
  const std::string step_4 = folder.dir() / "checkpoints/step_4", link = folder.dir() / "link";
  fs::create_directory_symlink(step_4, link);
  const std::string ways[] = {step_4, step_4 + "/", link, folder.dir() / "checkpoints/./step_4/."};
  const std::string& resumed = ways[GENERATE(0, 1, 2, 3)];
  CAPTURE(resumed);
  CHECK(is_checkpoint_of(resumed, folder.path()));
  CHECK_FALSE(is_checkpoint_of(resumed, folder.dir() / "other"));
  remove_end_checkpoints(folder.path(), resumed);
  CHECK(folder.names() == Names{"step_2", "step_4"});
  remove_checkpoints(folder.path(), resumed);
  CHECK(fs::exists(step_4 + "/manifest.json"));
  CHECK_FALSE(fs::exists(folder.dir() / "checkpoints/step_2"));
}

TEST_CASE("what the end of a run saved goes for a newer one of the run, and for another run") {
  const Folder folder;
  const Lineage first = new_lineage(), next = branch_of(first, 5);
  folder.save(2, first);
  folder.save(3, first, true);
  folder.save(5, first, true);
  CHECK(newest_step_in(folder.path()) == 5);
  CHECK(find_checkpoint(folder.path()).label.end);
  remove_end_checkpoints(folder.path(), next, 5);
  CHECK(folder.names() == Names{"step_2", "step_5"});
  remove_end_checkpoints(folder.path(), new_lineage(), 9);
  CHECK(folder.names() == Names{"step_2", "step_5"});
  // One of a branch that was left is never removed.
  continue_lineage(folder.path(), branch_of(first, 2), 2);
  folder.save(4, first, true);
  remove_end_checkpoints(folder.path());
  CHECK(folder.names() == Names{"step_2", "step_5.abandoned-" + first.id});
}

}  // namespace
}  // namespace dstrain
