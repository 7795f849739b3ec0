#include "launcher/supervise/restart.h"

#include <catch2/catch.hpp>
#include <filesystem>

#include "runtime/comm/communicator.h"
#include "runtime/comm/world.h"
#include "runtime/core/error.h"
#include "runtime/storage/checkpoint/checkpoint_save.h"
#include "tests/support/temp_dir.h"

namespace dstrain {
namespace {

using Words = std::vector<std::string>;

void save(const std::string& output, int64_t step, const std::string& run = "this") {
  const auto comm = make_communicator();
  save_checkpoint(output, {.step = step, .lineage = {.id = run}}, {}, *comm);
  comm->finish();
}

// A run whose starts come out as a list says, and what was asked of it.
struct Script {
  int run(int64_t most, const std::string& output) {
    return run_with_restarts(
        {.most = most, .output = output},
        [this](const std::string& resume) {
          resumed.push_back(resume);
          StartOutcome outcome = starts.at(resumed.size() - 1);
          if (work) work(resumed.size());
          return outcome;
        },
        [this](double seconds) {
          pauses.push_back(seconds);
          return signal;
        });
  }
  std::vector<StartOutcome> starts;
  std::function<void(size_t)> work;  // what the k-th start, from 1, leaves behind
  int signal = 0;
  Words resumed;
  std::vector<double> pauses;
};

const StartOutcome kGood{{0, ""}, false};
const StartOutcome kFailed{{2, "rank 1 was killed"}, false};

TEST_CASE("a run that fails is started again from its newest checkpoint, at most N times") {
  TempDir dir;
  Script script;
  script.starts = {kFailed, kFailed, kFailed};
  script.work = [&](size_t start) {
    if (start == 1) save(dir.path(), 4);
    if (start == 2) save(dir.path(), 10);
  };
  SECTION("until it is done") {
    script.starts[2] = kGood;
    CHECK(script.run(5, dir.path()) == 0);
  }
  SECTION("until N restarts have failed") {
    CHECK(script.run(2, dir.path()) == 2);
  }
  // By its folder: where that checkpoint turns out to be damaged, the one before it is taken.
  CHECK(script.resumed == Words{"", dir.path(), dir.path()});
  CHECK(script.pauses == std::vector<double>{1, 1});
}

TEST_CASE("the pause doubles up to a minute while a run gets no further") {
  TempDir dir;
  Script script;
  script.starts.assign(10, kFailed);
  CHECK(script.run(9, dir.path()) == 2);
  CHECK(script.pauses == std::vector<double>{1, 2, 4, 8, 16, 32, 60, 60, 60});
  CHECK(script.resumed == Words(10));
}

TEST_CASE("neither the user's mistake nor the user's signal starts a run again") {
  const StartOutcome outcome =
      GENERATE(StartOutcome{{1, "no such file"}, false}, StartOutcome{{143, ""}, true},
               StartOutcome{{2, "rank 1 was killed"}, true}, kGood);
  TempDir dir;
  Script script;
  script.starts = {outcome};
  CHECK(script.run(3, dir.path()) == outcome.report.exit_status);
  CHECK(script.pauses.empty());
}

TEST_CASE("a signal in the pause ends it with the signal's status") {
  TempDir dir;
  Script script;
  script.starts = {kFailed};
  script.signal = 15;
  CHECK(script.run(3, dir.path()) == 143);
  CHECK(script.resumed.size() == 1);
}

TEST_CASE("checkpoints of an earlier run, and unfinished ones, are not continued from") {
  TempDir dir;
  save(dir.path(), 100, "earlier");
  Script script;
  script.starts = {kFailed, kFailed, kGood};
  script.work = [&](size_t start) {
    std::filesystem::create_directories(dir / "checkpoints/step_700.tmp");
    std::filesystem::create_directories(dir / "checkpoints/step_800");
    if (start == 2) save(dir.path(), 50);
  };
  CHECK(script.run(5, dir.path()) == 0);
  CHECK(script.resumed == Words{"", "", dir.path()});
}

TEST_CASE("--resume is replaced, however it was given") {
  CHECK(words_resuming({"--config", "c", "--resume", "a"}, "") ==
        Words{"--config", "c", "--resume", "a"});
  CHECK(words_resuming({"--resume", "a", "--config", "c"}, "x y") ==
        Words{"--config", "c", "--resume=x y"});
  CHECK(words_resuming({"--resume=a", "--seed", "1"}, "b") == Words{"--seed", "1", "--resume=b"});
}

TEST_CASE("a restart takes the checkpoint's weights, and from the beginning the initial ones") {
  CHECK(words_resuming({"--init_weights", "w", "--config", "c"}, "a") ==
        Words{"--config", "c", "--resume=a"});
  CHECK(words_resuming({"--config", "c", "--init_weights=w"}, "a") ==
        Words{"--config", "c", "--resume=a"});
  CHECK(words_resuming({"--config", "c", "--init_weights=w"}, "") ==
        Words{"--config", "c", "--init_weights=w"});
}

TEST_CASE("a pause that nobody ends lasts") {
  CHECK(pause_unless_stopped(0.05) == 0);
}

}  // namespace
}  // namespace dstrain
