// Saving and loading: every number of ranks to every other, and the errors on the way.
#include <catch2/catch.hpp>
#include <span>

#include "runtime/core/error.h"
#include "runtime/core/formats/safetensors.h"
#include "runtime/storage/checkpoint/checkpoint_load.h"
#include "runtime/storage/checkpoint/checkpoint_retention.h"
#include "runtime/storage/checkpoint/checkpoint_save.h"
#include "tests/storage/checkpoint/state_fixture.h"
#include "tests/storage/checkpoint/threads_as_ranks.h"
#include "tests/support/file_limit.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Catch::Contains;
namespace fs = std::filesystem;
using Errors = std::vector<std::string>;

Errors save(const std::string& dir, int64_t step, int ranks,
            const std::vector<FixtureTensor>& specs = small_model()) {
  return run_ranks(ranks, [&](Communicator& comm) {
    FixtureRank rank(specs, comm.rank(), comm.size());
    rank.fill(step);
    save_checkpoint(dir, {.step = step, .facts = {{"a", "test"}}}, rank.state(), comm);
  });
}

// Loads the checkpoint on all ranks and checks its values. Returns the message of each rank's error, or "".
Errors load(const std::string& dir, int ranks, int64_t expected_step,
            const std::vector<FixtureTensor>& specs = small_model()) {
  return run_ranks(ranks, [&](Communicator& comm) {
    FixtureRank rank(specs, comm.rank(), comm.size());
    const int64_t step = load_checkpoint(dir, rank.state(), comm).label.step;
    if (step != expected_step) fail_run("step {}, expected {}", step, expected_step);
    if (!rank.has_values_of(step)) fail_run("other values than were saved");
  });
}

std::string resume_error(const std::string& dir,
                         const std::vector<FixtureTensor>& specs = small_model()) {
  return load(dir, 1, -1, specs).front();
}

TEST_CASE("what any number of ranks saved, any other number loads, bit for bit") {
  for (const int from : {1, 2, 3, 4, 8}) {
    TempDir dir;
    REQUIRE(save(dir.path(), 7, from) == Errors(static_cast<size_t>(from)));
    for (const int to : {1, 2, 3, 5, 8}) {
      CAPTURE(from, to);
      CHECK(load(dir.path(), to, 7) == Errors(static_cast<size_t>(to)));
    }
  }
}

TEST_CASE("tensors of several checksum blocks are cut anywhere") {
  TempDir dir;
  REQUIRE(save(dir.path(), 3, 2, large_model()) == Errors(2));
  for (const int to : {1, 3})
    CHECK(load(dir.path(), to, 3, large_model()) == Errors(static_cast<size_t>(to)));
}

TEST_CASE("of replicas the first owner writes, and every rank loads everything") {
  TempDir dir;
  const auto body = [&](bool all_own) {
    return run_ranks(3, [&](Communicator& comm) {
      FixtureRank rank(small_model(), all_own || comm.rank() == 1);
      rank.fill(5);
      save_checkpoint(dir.path(), {.step = 5}, rank.state(), comm);
      rank.fill(0);
      load_checkpoint(dir.path(), rank.state(), comm);
      if (!rank.has_values_of(5)) fail_run("other values");
    });
  };
  CHECK(body(false) == Errors(3));
  CHECK(body(true) == Errors(3));
}

TEST_CASE(
    "the newest complete checkpoint is found from the output, checkpoints and step directories") {
  TempDir dir;
  for (const int64_t step : {9, 10, 100}) REQUIRE(save(dir.path(), step, 1) == Errors(1));
  const std::string root = dir / "checkpoints";
  CHECK(load(dir.path(), 1, 100) == Errors(1));
  CHECK(load(dir.path() + "/", 1, 100) == Errors(1));
  CHECK(load(root, 2, 100) == Errors(2));
  CHECK(load(root + "/step_9", 1, 9) == Errors(1));
  CHECK(load(root + "/step_10/", 1, 10) == Errors(1));
  // Directories without a manifest do not count.
  fs::create_directories(root + "/step_500");
  fs::create_directories(root + "/step_600.tmp");
  fs::create_directories(root + "/step_x");
  CHECK(load(dir.path(), 1, 100) == Errors(1));
  const CheckpointInfo info = find_checkpoint(dir.path());
  CHECK((info.label.step == 100 && info.ranks == 1 && info.label.facts.at("a") == "test" &&
         info.dir == root + "/step_100"));
}

TEST_CASE("a finished directory holds the ranks' files and the manifest, and nothing else") {
  TempDir dir;
  REQUIRE(save(dir.path(), 4, 2) == Errors(2));
  std::vector<std::string> names;
  for (const auto& e : fs::recursive_directory_iterator(dir.path()))
    names.push_back(e.path().filename().string());
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"checkpoints", "manifest.json", "rank_00000.safetensors",
                                          "rank_00001.safetensors", "step_4"});
  const SafetensorsHeader header =
      read_safetensors_header(InputFile(dir / "checkpoints/step_4/rank_00001.safetensors", "file"));
  CHECK(header.find("a.weight:exp_avg@116"));
}

TEST_CASE("saving the same step again replaces it") {
  TempDir dir;
  REQUIRE(save(dir.path(), 4, 3) == Errors(3));
  REQUIRE(save(dir.path(), 4, 1) == Errors(1));
  CHECK(load(dir.path(), 2, 4) == Errors(2));
  CHECK(find_checkpoint(dir.path()).ranks == 1);
  CHECK_FALSE(fs::exists(dir / "checkpoints/step_4.tmp"));
  CHECK_FALSE(fs::exists(dir / "checkpoints/step_4/rank_00002.safetensors"));
}

TEST_CASE("a checkpoint that was moved aside by an interrupted replacement still loads") {
  TempDir dir;
  REQUIRE(save(dir.path(), 4, 1) == Errors(1));
  fs::rename(dir / "checkpoints/step_4", dir / "checkpoints/step_4.old");
  CHECK(load(dir.path(), 1, 4) == Errors(1));
  REQUIRE(save(dir.path(), 4, 2) == Errors(2));
  CHECK(find_checkpoint(dir.path()).ranks == 2);
  CHECK_FALSE(fs::exists(dir / "checkpoints/step_4.old"));
}

TEST_CASE("saving clears what interrupted saves left, and nothing that counts") {
  TempDir dir;
  for (const int64_t step : {1, 2}) REQUIRE(save(dir.path(), step, 1) == Errors(1));
  const std::string root = dir / "checkpoints";
  fs::rename(root + "/step_1", root + "/step_1.old");
  for (const char* name : {"/step_2.old", "/step_3.tmp", "/step_4.tmp"})
    fs::create_directories(root + name);
  REQUIRE(save(dir.path(), 4, 1) == Errors(1));
  std::vector<std::string> names;
  for (const auto& e : fs::directory_iterator(root)) names.push_back(e.path().filename().string());
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"step_1.old", "step_2", "step_4"});
}

TEST_CASE("checkpoints of an earlier run are removed, other files are not") {
  TempDir dir;
  remove_checkpoints(dir.path());
  for (const int64_t step : {1, 2}) REQUIRE(save(dir.path(), step, 1) == Errors(1));
  fs::create_directories(dir / "checkpoints/step_3.tmp");
  dir.write("checkpoints/notes.txt", "x");
  remove_checkpoints(dir.path());
  CHECK(fs::exists(dir / "checkpoints/notes.txt"));
  CHECK(std::distance(fs::directory_iterator(dir / "checkpoints"), {}) == 1);
}

TEST_CASE("no checkpoint, an unfinished one and a missing directory are told apart") {
  TempDir dir;
  CHECK_THAT(resume_error(dir / "none"), Contains("none is not a directory"));
  CHECK_THAT(resume_error(dir.path()),
             Contains("no checkpoint in " + dir.path()) && Contains("save_interval"));
  fs::create_directories(dir / "checkpoints/step_20");
  fs::create_directories(dir / "checkpoints/step_30.tmp");
  CHECK_THAT(resume_error(dir.path()), Contains("no complete checkpoint") &&
                                           Contains("step_30.tmp, step_20 lack manifest.json"));
  CHECK_THAT(resume_error(dir / "checkpoints/step_20"), Contains("step_20 has no manifest.json"));
}

TEST_CASE("missing, superfluous and different tensors are listed by name") {
  TempDir dir;
  REQUIRE(save(dir.path(), 4, 2) == Errors(2));
  std::vector<FixtureTensor> specs = small_model();
  specs[0].shape = {7, 33};
  specs[3].dtype = DType::i32;
  specs.push_back({"b", "momentum", {4}});
  CHECK_THAT(resume_error(dir.path(), specs),
             Contains("step_4 does not fit this run (mismatches: 3)") &&
                 Contains("a.weight/master is f32 (33, 7), expected f32 (7, 33)") &&
                 Contains("half/params is bf16 (11, 3), expected i32 (11, 3)") &&
                 Contains("b/momentum (4) is missing"));
  specs = small_model();
  specs.erase(specs.begin() + 1);
  for (const std::string& error : load(dir.path(), 3, 4, specs))
    CHECK_THAT(error, Contains("(mismatches: 1)") &&
                          Contains("a.weight/exp_avg (33, 7) is not part of it"));
}

TEST_CASE(
    "ranks whose registers do not cover every tensor are told what is missing or saved twice") {
  TempDir dir;
  const auto save_with = [&](int64_t begin) {
    return run_ranks(2, [&](Communicator& comm) {
      FixtureRank rank({{"w", "master", {10}}}, comm.rank(), comm.size());
      if (comm.rank() == 1) rank.state()[0].begin = begin;
      save_checkpoint(dir.path(), {.step = 1}, rank.state(), comm);
    });
  };
  CHECK_THAT(
      save_with(4)[0],
      Contains(
          "w/master: elements [4, 5) are saved twice, before the slice in rank_00001.safetensors"));
  Errors errors = run_ranks(2, [&](Communicator& comm) {
    FixtureRank rank({{"w", "master", {10}}}, comm.rank(), comm.size());
    rank.state()[0].owner = comm.rank() == 0;
    save_checkpoint(dir.path(), {.step = 1}, rank.state(), comm);
  });
  CHECK_THAT(errors[0], Contains("w/master: elements [5, 10) are missing"));
  CHECK_THAT(errors[1], Contains("rank 0 could not complete a checkpoint"));
  CHECK(fs::is_empty(dir / "checkpoints"));
}

TEST_CASE("a full disk on one rank fails on all, hangs none, and leaves the old checkpoint") {
  TempDir dir;
  REQUIRE(save(dir.path(), 1, 3, large_model()) == Errors(3));
  Errors errors;
  {
    FileSizeLimit limit(1'000'000);
    errors = run_ranks(3, [&](Communicator& comm) {
      // Only rank 1 has the large tensor.
      FixtureRank rank(small_model(), comm.rank(), comm.size()),
          large({large_model().back()}, comm.rank() == 1);
      StateRegister state = rank.state();
      state.push_back(large.state()[0]);
      save_checkpoint(dir.path(), {.step = 2}, state, comm);
    });
  }
  CHECK_THAT(errors[1], Contains("step_2.tmp/rank_00001.safetensors") &&
                            Contains("at offset 1000000") && Contains("File too large"));
  for (const int rank : {0, 2})
    CHECK_THAT(errors[static_cast<size_t>(rank)],
               Contains("rank 1 could not write its part of a checkpoint"));
  CHECK_FALSE(fs::exists(dir / "checkpoints/step_2.tmp"));
  CHECK(load(dir.path(), 2, 1, large_model()) == Errors(2));
}

TEST_CASE("ranks agree on whether a run can go on without a checkpoint") {
  TempDir dir;
  const bool bug = GENERATE(false, true);
  const FileSizeLimit limit(1'000'000);
  const Errors errors = run_ranks(3, [&](Communicator& comm) {
    // The disk has no room for a tensor of rank 1, or no rank owns a tensor, which rank 0 finds out.
    FixtureRank large({large_model().back()}, !bug && comm.rank() == 1);
    const auto failure = try_save_checkpoint(dir.path(), {.step = 2}, large.state(), comm);
    if (!failure || failure->can_go_on == bug || failure->own != (comm.rank() == (bug ? 0 : 1)))
      fail_run("not the failure that was caused");
  });
  CHECK(errors == Errors(3));
  CHECK(fs::is_empty(dir / "checkpoints"));
}

// One rank, whose run another one stops at any time.
class StoppedComm : public ThreadComm {
 public:
  using ThreadComm::ThreadComm;
  void stop() { stopped_ = true; }
  void gather_values(std::span<const double> mine, std::span<double> all) override {
    if (stopped_) throw PeerError("rank 2 stopped the run");
    ThreadComm::gather_values(mine, all);
  }

 private:
  bool stopped_ = false;
};

TEST_CASE(
    "a rank without room for a checkpoint says so, though the others stop the run meanwhile") {
  TempDir dir;
  ThreadGroup group(1);
  StoppedComm comm(group, 0);
  const StateRegister state = {{.name = "too large",
                                .slot = "master",
                                .global_shape = {int64_t{1} << 45},
                                .local = {nullptr, {int64_t{1} << 45}, DType::f32}}};
  const auto save = [&] {
    try_save_checkpoint(dir.path(), {.step = 4}, state, comm, [&comm] {
      comm.stop();
      return false;
    });
  };
  CHECK_THROWS_WITH(save(), Contains("saving step 4 needs 141 TB"));
}

TEST_CASE("a place that cannot be written fails on all ranks") {
  TempDir dir;
  dir.write("checkpoints", "a file in the way");
  const Errors errors = save(dir.path(), 1, 2);
  CHECK_THAT(errors[0], Contains("checkpoints") && Contains("cannot make the directory"));
  CHECK_THAT(errors[1], Contains("rank 0 could not prepare a checkpoint"));
}

TEST_CASE("ranks that see different checkpoints say so") {
  TempDir here, there;
  REQUIRE(save(here.path(), 1, 1) == Errors(1));
  REQUIRE(save(there.path(), 2, 1) == Errors(1));
  const Errors errors = run_ranks(2, [&](Communicator& comm) {
    FixtureRank rank(small_model(), comm.rank(), comm.size());
    load_checkpoint(comm.rank() == 0 ? here.path() : there.path(), rank.state(), comm);
  });
  for (const std::string& error : errors)
    CHECK_THAT(error, Contains("rank 0 finds step 1") && Contains("rank 1 finds step 2"));
}

}  // namespace
}  // namespace dstrain
