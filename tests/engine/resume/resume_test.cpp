// Tests of the checks and log lines of a resume, which use the checkpoint's label only.
#include "runtime/engine/resume/resume.h"

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

TEST_CASE("a loss scale is gone on with only where both runs adapt it") {
  const std::string dynamic = "dynamic loss scale from 65536, window 1000, hysteresis 2";
  Job job = job_of_batch(8);
  job.dtype = DType::f16;
  job.loss_scale.dynamic = true;
  CHECK(keeps_loss_scale(saved({{"dtype", "fp16"}, {"fp16", dynamic}}).label, job));
  CHECK(keeps_loss_scale(saved({}).label, job));  // of an older program
  CHECK_FALSE(keeps_loss_scale(saved({{"dtype", "fp16"}, {"fp16", "loss scale 128"}}).label, job));
  CHECK_FALSE(keeps_loss_scale(saved({{"dtype", "bf16"}}).label, job));
  const CheckpointInfo checkpoint = saved({{"fp16", dynamic}});
  CHECK(changes_since(checkpoint, job, {{"fp16", "other", FactChange::allowed}}) ==
        Lines{"fp16 was " + dynamic +
              " and is other: the scale goes on as it was, by the new rules from step 5 on"});
  job.loss_scale.dynamic = false;
  CHECK_FALSE(keeps_loss_scale(checkpoint.label, job));
  CHECK(
      changes_since(checkpoint, job, {{"fp16", "loss scale 128", FactChange::allowed}}) ==
      Lines{"fp16 was " + dynamic + " and is loss scale 128: the new value holds from step 5 on"});
  job.dtype = DType::bf16;
  job.loss_scale.dynamic = true;
  CHECK_FALSE(keeps_loss_scale(checkpoint.label, job));
}

TEST_CASE(
    "what makes other tensors is refused, whatever the user accepts, and before anything else") {
  const RunFacts facts = {{"optimizer.type", "SGD", FactChange::forbidden},
                          {"optimizer slots", "momentum", FactChange::impossible},
                          {"optimizer.params.lr", "0.1", FactChange::allowed}};
  Job job = job_of_batch(8);
  for (const bool accepted : {false, true}) {
    job.resume_with_changes = accepted;
    CHECK_THROWS_WITH(
        changes_since(saved({{"optimizer.type", "AdamW"}, {"optimizer slots", "exp_avg"}}), job,
                      facts),
        "--resume: out/checkpoints/step_4 was saved by a run with other tensors; use its settings, "
        "or begin a new run "
        "(with its weights, --init_weights, if the model is the same):\n  "
        "optimizer slots was exp_avg and is momentum");
  }
}

TEST_CASE("a checkpoint without facts is taken with a line, its samples counted by steps") {
  CheckpointInfo old = saved({});
  old.label.samples = -1;
  const Lines lines = changes_since(old, job_of_batch(8), kFacts);
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines[0], Catch::StartsWith("out/checkpoints/step_4 does not say what its numbers"));
  CHECK(samples_before(old.label, job_of_batch(8)) == 32);
}

// Returns a job whose second moment is frozen after so many updates, and checks it with a checkpoint of the same kind.
void resume_frozen(OptimizerKind kind, const char* key, int64_t was, int64_t is, int64_t applied) {
  Job job = job_of_batch(8);
  job.optimizer.kind = kind;
  job.optimizer.freeze_step = job.optimizer.zero_one.var_freeze_step = is;
  check_frozen_state(saved({{key, std::to_string(was)}}), job, {}, applied);
}

TEST_CASE("a second moment that is frozen stays so") {
  for (const OptimizerKind kind :
       {OptimizerKind::one_bit_adam, OptimizerKind::one_bit_lamb, OptimizerKind::zero_one_adam}) {
    const char* key = kind == OptimizerKind::zero_one_adam ? "optimizer.params.var_freeze_step"
                                                           : "optimizer.params.freeze_step";
    CHECK_THROWS_WITH(
        resume_frozen(kind, key, 2, 6, 4),
        Catch::StartsWith("--resume: out/checkpoints/step_4 was saved after 4 updates, and ") &&
            Catch::Contains(std::string(key) + " 6 would update it again. Use 2"));
    CHECK_NOTHROW(resume_frozen(kind, key, 2, 4, 4));
    CHECK_NOTHROW(resume_frozen(kind, key, 2, 1, 4));
    CHECK_NOTHROW(resume_frozen(kind, key, 4, 6, 4));  // nothing is frozen yet
    CHECK_NOTHROW(resume_frozen(kind, "none", 2, 6, 4));
  }
  CHECK_NOTHROW(resume_frozen(OptimizerKind::adam, "optimizer.params.freeze_step", 2, 6, 4));
}

TEST_CASE("between two synchronisations what local steps depend on does not change") {
  const std::map<std::string, std::string> then = {{"optimizer.params.lr", "0.001"},
                                                   {"optimizer.params.var_freeze_step", "2"},
                                                   {"optimizer.params.local_step_scaler", "1"},
                                                   {"optimizer.params.local_step_clipper", "4"},
                                                   {"gradient_clipping", "1"}};
  Job job = job_of_batch(8);
  job.optimizer.kind = OptimizerKind::zero_one_adam;
  job.optimizer.zero_one.var_freeze_step = 2;
  // Updates 3, 4, 6 + 4k (local steps 1, 2, 4 + 4k) synchronise.
  const RunFacts lr = {{"optimizer.params.lr", "0.002", FactChange::allowed}};
  const RunFacts clipping = {{"gradient_clipping", "2", FactChange::allowed}};
  for (const int64_t applied : {4, 6, 10}) {
    CHECK_NOTHROW(check_frozen_state(saved(then), job, lr, applied));
    CHECK_NOTHROW(check_frozen_state(saved(then), job, clipping, applied + 1));
    CHECK_THROWS_WITH(
        check_frozen_state(saved(then), job, lr, applied + 1),
        Catch::StartsWith("--resume: before out/checkpoints/step_4 each rank of ZeroOneAdam has "
                          "moved by itself in 1 step, which is not synchronised yet") &&
            Catch::EndsWith("\n  optimizer.params.lr was 0.001 and is 0.002"));
  }
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
