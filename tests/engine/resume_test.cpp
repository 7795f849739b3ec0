// Tests of the checks and log lines of a resume, which use the checkpoint's label only.
#include "runtime/engine/run/resume.h"

#include <catch2/catch.hpp>

#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Lines = std::vector<std::string>;

const RunFacts kFacts = {{"dstrain.seed", "7", FactChange::forbidden},
                         {"train_batch_size", "8", FactChange::allowed},
                         {"ranks", "2", FactChange::irrelevant}};

Job job_of_batch(int64_t samples) {
  Job job;
  job.batch.train_batch = samples;
  return job;
}

CheckpointInfo saved(const std::map<std::string, std::string>& facts) {
  CheckpointInfo checkpoint{.dir = "out/checkpoints/step_4"};
  checkpoint.label = {.step = 4, .samples = 16, .facts = facts};
  return checkpoint;
}

TEST_CASE(
    "a checkpoint keeps the facts that a change of makes other numbers, and fits its own run") {
  const std::map<std::string, std::string> kept = kept_facts(kFacts);
  CHECK(kept ==
        std::map<std::string, std::string>{{"dstrain.seed", "7"}, {"train_batch_size", "8"}});
  CHECK(changes_since(saved(kept), job_of_batch(8), kFacts).empty());
}

TEST_CASE("a fact that the saving program did not know is not compared") {
  CHECK(changes_since(saved({{"dstrain.seed", "7"}}), job_of_batch(8), kFacts).empty());
}

TEST_CASE("dangerous changes are refused together, meant ones are told with what follows") {
  Job job = job_of_batch(8);
  const CheckpointInfo checkpoint = saved({{"dstrain.seed", "1"}, {"train_batch_size", "4"}});
  CHECK_THROWS_WITH(changes_since(checkpoint, job, kFacts),
                    Catch::EndsWith("\n  dstrain.seed was 1 and is 7"));
  job.resume_with_changes = true;
  CHECK(changes_since(checkpoint, job, kFacts) ==
        Lines{"train_batch_size was 4 and is 8: step 5 takes samples 16 to 23",
              "dstrain.seed was 1 and is 7: accepted by --resume_with_changes, these are no longer "
              "the numbers of one run"});
}

TEST_CASE("a checkpoint without facts is taken with a line, its samples counted by steps") {
  CheckpointInfo old = saved({});
  old.label.samples = -1;
  const Lines lines = changes_since(old, job_of_batch(8), kFacts);
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], Catch::StartsWith("out/checkpoints/step_4 does not say what its numbers"));
  CHECK(samples_before(old.label, job_of_batch(8)) == 32);
}

TEST_CASE("a resume says where it begins and what it passed over") {
  CheckpointInfo checkpoint = saved({});
  checkpoint.passed_over = {"step_6: saving it was interrupted"};
  CHECK(resume_line(checkpoint) == "resumes after step 4 of out/checkpoints/step_4");
  CHECK(passed_over_lines(checkpoint) ==
        Lines{"--resume passes over step_6: saving it was interrupted"});
}

}  // namespace
}  // namespace dstrain
