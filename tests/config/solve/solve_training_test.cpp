#include "runtime/config/solve/solve_training.h"

#include <catch2/catch.hpp>

#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/key_table.h"
#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {
std::string optimizer(const std::string& type, const std::string& params) {
  return trains_with("\"optimizer\": {\"type\": \"" + type + "\", \"params\": {" + params + "}}");
}
std::string scheduler(const std::string& type, const std::string& params) {
  return trains_with("\"scheduler\": {\"type\": \"" + type + "\", \"params\": {" + params + "}}");
}
}  // namespace

TEST_CASE("training: an empty configuration has DeepSpeed's defaults") {
  const Job job = ask(trains_with("")).job();
  CHECK(job.optimizer == OptimizerConfig{});
  CHECK(job.schedule.kind == ScheduleKind::constant);
  CHECK(job.dtype == DType::f32);
  CHECK(job.wire_dtype == DType::f32);
  CHECK_FALSE(job.skip_on_overflow);
  CHECK(job.gradient_clipping == 1.0);
  CHECK(job.steps_per_print == 10);
  CHECK(job.reduce == ReduceMode::boundary);
  CHECK(job.reduce_bucket_elements == 500000000);
}

TEST_CASE("training: label smoothing and the z-loss are of the loss") {
  CHECK(ask(trains_with("")).job().loss == LossConfig{});
  const Job job = ask(trains_with(R"("dstrain": {"label_smoothing": 0.1, "z_loss": 1e-4})")).job();
  CHECK(job.loss.label_smoothing == 0.1);
  CHECK(job.loss.z_loss == 1e-4);
  const auto said = [](const std::string& key, const std::string& value) {
    return verdict(ask(trains_with(R"("dstrain": {")" + key + "\": " + value + "}")).check(),
                   "dstrain." + key);
  };
  CHECK(said("label_smoothing", "1") == "error: expected a number from 0 to below 1, found 1");
  CHECK(said("z_loss", "-1") == "error: expected a number from 0 to 1, found -1");
}

TEST_CASE("training: optimizers and their parameters") {
  const OptimizerConfig adam =
      ask(optimizer("adam", R"("lr": 3e-4, "betas": [0.8, 0.99], "eps": 1e-6, "weight_decay": 0.1,
                               "bias_correction": false, "torch_adam": true)"))
          .job()
          .optimizer;
  CHECK(adam.kind == OptimizerKind::adam);
  CHECK(adam.lr == 3e-4);
  CHECK(adam.beta1 == 0.8);
  CHECK(adam.beta2 == 0.99);
  CHECK(adam.eps == 1e-6);
  CHECK(adam.weight_decay == 0.1);
  CHECK_FALSE(adam.bias_correction);
  CHECK(adam.decoupled_decay);
  CHECK_FALSE(ask(optimizer("Adam", R"("adam_w_mode": false)")).job().optimizer.decoupled_decay);
  CHECK(ask(optimizer("AdamW", R"("adam_w_mode": false)")).job().optimizer.decoupled_decay);
  const OptimizerConfig sgd =
      ask(optimizer("SGD", R"("lr": 1, "momentum": 0.9, "nesterov": true)")).job().optimizer;
  CHECK(sgd.kind == OptimizerKind::sgd);
  CHECK(sgd.lr == 1);
  CHECK(sgd.momentum == 0.9);
  CHECK(sgd.nesterov);
  CHECK_FALSE(sgd.decoupled_decay);
}

TEST_CASE("training: Adagrad, Lion and Lamb have DeepSpeed's defaults, in any case") {
  const auto defaults = [](const char* type) { return ask(optimizer(type, "")).job().optimizer; };
  const OptimizerConfig adagrad = defaults("Adagrad");
  CHECK(adagrad.kind == OptimizerKind::adagrad);
  CHECK(adagrad.lr == 0.01);
  CHECK(adagrad.eps == 1e-10);
  const OptimizerConfig lion = defaults("lion");
  CHECK(lion.kind == OptimizerKind::lion);
  CHECK(lion.lr == 0.001);
  CHECK(lion.beta1 == 0.9);
  CHECK(lion.beta2 == 0.999);
  const OptimizerConfig lamb = defaults("LAMB");
  CHECK(lamb.kind == OptimizerKind::lamb);
  CHECK(lamb.eps == 1e-8);
  CHECK(lamb.bias_correction);
  CHECK(lamb.max_coeff == 10);
  CHECK(lamb.min_coeff == 0.01);
  CHECK_FALSE(lamb.eps_inside_sqrt);
  const OptimizerConfig own =
      ask(optimizer("Lamb", R"("max_coeff": 2, "min_coeff": 0.5, "eps_inside_sqrt": true)"))
          .job()
          .optimizer;
  CHECK(own.max_coeff == 2);
  CHECK(own.min_coeff == 0.5);
  CHECK(own.eps_inside_sqrt);
}

TEST_CASE("training: optimizers with state in 8 bits have bitsandbytes' defaults") {
  for (const char* type : {"AdamW8bit", "adamw8bit", "PagedAdamW8bit"}) {
    const OptimizerConfig adam = ask(optimizer(type, "")).job().optimizer;
    CHECK(adam.kind == OptimizerKind::adam_8bit);
    CHECK(adam.lr == 0.001);
    CHECK(adam.beta2 == 0.999);
    CHECK(adam.eps == 1e-8);
    CHECK(adam.weight_decay == 0.01);
    CHECK(adam.decoupled_decay);
    CHECK(adam.bias_correction);
    CHECK(adam.min_8bit_size == 4096);
  }
  const OptimizerConfig lion = ask(optimizer("Lion8bit", R"("min_8bit_size": 0)")).job().optimizer;
  CHECK(lion.kind == OptimizerKind::lion_8bit);
  CHECK(lion.lr == 0.0001);
  CHECK(lion.beta2 == 0.99);
  CHECK(lion.weight_decay == 0);
  CHECK(lion.min_8bit_size == 0);
}

TEST_CASE("training: what optimizers with state in 8 bits do not go with") {
  for (const std::string type : {"AdamW8bit", "Lion8bit"}) {
    const auto refusal = [&](const std::string& with, int ranks) {
      return ask(trains_with(fmt::format(R"("optimizer": {{"type": "{}"}}, {})", type, with)), {},
                 ranks)
          .error();
    };
    CHECK_THAT(refusal(R"("tensor_parallel": {"autotp_size": 2})", 2),
               Catch::Contains("optimizer.type: optimizers with state in 8 bits do not run with "
                               "tensor_parallel.autotp_size above 1 yet: use AdamW"));
    CHECK_THAT(refusal(R"("zero_optimization": {"stage": 0},
                          "dstrain": {"comm_hook": {"type": "post_localSGD"}})",
                       2),
               Catch::Contains("state in 8 bits, as " + type + " has it, cannot be averaged"));
    CHECK_THAT(refusal(R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true})", 1),
               Catch::Contains("bf16.bf16_master_weights_and_grads"));
  }
}

TEST_CASE("training: what is said of optimizers that cannot be used") {
  const auto [text, key, expected] = GENERATE(table<std::string, std::string, std::string>({
      {optimizer("OnebitLamb", R"("coeff_beta": 1)"), "optimizer.params.coeff_beta",
       "error: expected a number from 0 to below 1, found 1"},
      {optimizer("OnebitLamb", R"("factor_min": 5)"), "optimizer.params.factor_min",
       "error: 5 is above factor_max 4"},
      {optimizer("OnebitLamb", R"("factor_threshold": -1)"), "optimizer.params.factor_threshold",
       "error: expected a number of at least 0, found -1"},
      {optimizer("OnebitLamb", R"("eps_inside_sqrt": true)"), "optimizer.params.eps_inside_sqrt",
       "no_effect: as in DeepSpeed, eps is outside"},
      {optimizer("OnebitAdam", R"("coeff_beta": 0.5)"), "optimizer.params.coeff_beta",
       "error: belongs to onebitlamb, not to onebitadam"},
      {optimizer("OnebitAdam", R"("freeze_step": 0)"), "optimizer.params.freeze_step",
       "error: expected an integer of at least 1, found 0"},
      {optimizer("OnebitAdam", R"("cuda_aware": true)"), "optimizer.params.cuda_aware",
       "no_effect: momenta travel as everything else does"},
      {optimizer("OnebitAdam", R"("comm_backend_name": "mpi")"),
       "optimizer.params.comm_backend_name", "no_effect: momenta travel as everything else does"},
      {optimizer("OnebitAdam", R"("bias_correction": true)"), "optimizer.params.bias_correction",
       "no_effect: as in DeepSpeed, its moments are not corrected"},
      {optimizer("OnebitLamb", R"("bias_correction": true)"), "optimizer.params.bias_correction",
       "no_effect: as in DeepSpeed, its moments are not corrected"},
      {optimizer("Muon", R"("momentum": 1)"), "optimizer.params.momentum",
       "error: expected a number from 0 to below 1, found 1"},
      {optimizer("Muon", R"("ns_method": "svd")"), "optimizer.params.ns_method",
       "error: expected one of \"gram\", \"standard\", found \"svd\""},
      {optimizer("Muon", R"("lr": 1, "muon_lr": 1, "adam_lr": 1)"), "optimizer.params.lr",
       "no_effect: muon_lr and adam_lr overrule it"},
      {optimizer("Lion", R"("eps": 1e-8)"), "optimizer.params.eps",
       "error: belongs to adagrad, muon, adam, adamw, lamb, onebitadam, onebitlamb, zerooneadam, "
       "adamw8bit, pagedadamw8bit, not to lion"},
      {optimizer("Lamb", R"("min_coeff": 0.5, "max_coeff": 0.25)"), "optimizer.params.min_coeff",
       "error: 0.5 is above max_coeff 0.25"},
      {optimizer("RMSprop", ""), "optimizer.type",
       "refused: RMSprop is not part of dstrain: use AdamW, Adam, SGD, Adagrad, Lion, Lamb, Muon, "
       "OneBitAdam, OneBitLamb, ZeroOneAdam, AdamW8bit, PagedAdamW8bit or Lion8bit"},
      {optimizer("MuAdam", ""), "optimizer.type",
       "refused: MuAdam is not part of dstrain: use AdamW, Adam, SGD, Adagrad, Lion, Lamb, Muon, "
       "OneBitAdam, OneBitLamb, ZeroOneAdam, AdamW8bit, PagedAdamW8bit or Lion8bit"},
      {optimizer("sgd", ""), "optimizer.type",
       "error: unknown optimizer \"sgd\" (did you mean \"SGD\"?)"},
      {optimizer("DeepSpeed_Adam", ""), "optimizer.type",
       "error: unknown optimizer \"DeepSpeed_Adam\": use AdamW, Adam, SGD, Adagrad, Lion, Lamb, "
       "Muon, OneBitAdam, OneBitLamb, ZeroOneAdam, AdamW8bit, PagedAdamW8bit or Lion8bit"},
      {optimizer("None", ""), "optimizer.type",
       "error: no optimizer is called \"None\": remove the section for AdamW"},
      {trains_with(R"("optimizer": {"params": {"lr": 1}})"), "optimizer.type",
       "error: missing: use AdamW, Adam, SGD, Adagrad, Lion, Lamb, Muon, OneBitAdam, OneBitLamb, "
       "ZeroOneAdam, AdamW8bit, PagedAdamW8bit or Lion8bit, or remove "
       "the section"},
      {optimizer("Adam", R"("max_grad_norm": 1.0)"), "optimizer.params.max_grad_norm",
       "refused: DeepSpeed refuses it too: use gradient_clipping at the top level"},
      {optimizer("Adam", R"("amsgrad": true)"), "optimizer.params.amsgrad",
       "refused: DeepSpeed's Adam refuses it too: use false"},
      {optimizer("Adam", R"("fp32_optimizer_states": true)"),
       "optimizer.params.fp32_optimizer_states",
       "no_effect: moments are fp32 unless bf16.bf16_optimizer_states is on"},
      {optimizer("Adam", R"("fp32_optimizer_states": false)"),
       "optimizer.params.fp32_optimizer_states",
       "no_effect: moments have the dtype of the masters or fp32, as bf16.bf16_optimizer_states "
       "says"},
      {optimizer("Adam", R"("lr": -1)"), "optimizer.params.lr",
       "error: expected a number of at least 0, found -1"},
      {optimizer("AdamW", R"("adam_w_mode": false)"), "optimizer.params.adam_w_mode",
       "no_effect: type AdamW decays decoupled all the same: use Adam"},
      {optimizer("SGD", R"("nesterov": true)"), "optimizer.params.nesterov",
       "error: needs a momentum above 0 and a dampening of 0"},
  }));
  INFO(text);
  CHECK(verdict(ask(text).check(), key) == expected);
}

TEST_CASE("training: the five schedules") {
  const ScheduleConfig warm =
      ask(scheduler("WarmupLR",
                    R"("warmup_max_lr": [0.1], "warmup_num_steps": 10, "warmup_type": "linear")"))
          .job()
          .schedule;
  CHECK(warm.kind == ScheduleKind::warmup);
  CHECK(warm.warmup_max_lr == 0.1);
  CHECK(warm.warmup_num_steps == 10);
  CHECK(warm.warmup_linear);
  const ScheduleConfig decay =
      ask(scheduler("WarmupDecayLR", R"("total_num_steps": 2000)")).job().schedule;
  CHECK(decay.kind == ScheduleKind::warmup_decay);
  CHECK(decay.total_num_steps == 2000);
  CHECK(decay.warmup_max_lr == 0.001);
  const ScheduleConfig cosine =
      ask(scheduler("WarmupCosineLR", R"("total_num_steps": 2000, "cos_min_ratio": 0.03)"))
          .job()
          .schedule;
  CHECK(cosine.kind == ScheduleKind::warmup_cosine);
  CHECK(cosine.cos_min_ratio == 0.03);
  const ScheduleConfig range =
      ask(scheduler("LRRangeTest",
                    R"("lr_range_test_step_size": 5, "lr_range_test_staircase": true)"))
          .job()
          .schedule;
  CHECK(range.kind == ScheduleKind::lr_range_test);
  CHECK(range.range_step_size == 5);
  CHECK(range.range_staircase);
  const ScheduleConfig cycle =
      ask(scheduler("OneCycle",
                    R"("cycle_min_lr": 0.1, "cycle_max_lr": 0.2, "cycle_first_step_size": 7,
                                   "cycle_first_stair_count": 3)"))
          .job()
          .schedule;
  CHECK(cycle.kind == ScheduleKind::one_cycle);
  CHECK(cycle.cycle_second_step_size == 7);
  CHECK(cycle.cycle_second_stair_count == 3);
  CHECK(cycle.cycle_momentum);
}

TEST_CASE("training: WarmupLR without a rate of its own warms up to the optimizer's") {
  const std::string text = trains_with(
      R"("optimizer": {"type": "Adam", "params": {"lr": 0.5}}, "scheduler": {"type": "WarmupLR"})");
  CHECK(ask(text).job().schedule.warmup_max_lr == 0.5);
}

TEST_CASE("training: what is said of schedules that cannot be used") {
  const auto [text, key, expected] = GENERATE(table<std::string, std::string, std::string>({
      {scheduler("warmuplr", ""), "scheduler.type",
       "error: unknown scheduler \"warmuplr\" (did you mean \"WarmupLR\"?)"},
      {scheduler("Nothing", ""), "scheduler.type",
       "error: unknown scheduler \"Nothing\": use one of LRRangeTest, OneCycle, WarmupLR, "
       "WarmupDecayLR, "
       "WarmupCosineLR"},
      {scheduler("StepLR", ""), "scheduler.type",
       "refused: StepLR of PyTorch is not part of dstrain: use one of LRRangeTest, OneCycle, "
       "WarmupLR, "
       "WarmupDecayLR, WarmupCosineLR"},
      {trains_with(R"("scheduler": {})"), "scheduler.type",
       "error: missing: use WarmupLR, for example, or remove the section"},
      {scheduler("WarmupDecayLR", ""), "scheduler.params.total_num_steps",
       "error: missing: give the number of steps, or \"auto\" for dstrain.steps"},
      {scheduler("WarmupDecayLR", R"("total_num_steps": -1)"), "scheduler.params.total_num_steps",
       "error: expected an integer of at least 1, found -1"},
      {scheduler("OneCycle", R"("cycle_max_lr": 1)"), "scheduler.params.cycle_min_lr",
       "error: OneCycle needs it: give a learning rate"},
      {scheduler("WarmupLR", R"("warmup_num_steps": 0)"), "scheduler.params.warmup_num_steps",
       "error: expected an integer of at least 1, found 0"},
      {scheduler("WarmupLR", R"("warmup_type": "cubic")"), "scheduler.params.warmup_type",
       "error: expected one of \"log\", \"linear\", found \"cubic\""},
      {scheduler("WarmupCosineLR", R"("warmup_max_lr": 1)"), "scheduler.params.warmup_max_lr",
       "error: belongs to WarmupLR, WarmupDecayLR, not to WarmupCosineLR"},
  }));
  INFO(text);
  CHECK(verdict(ask(text).check(), key) == expected);
}

TEST_CASE("training: a schedule with another rate overrules the optimizer's, with a warning") {
  const std::string text = trains_with(R"("optimizer": {"type": "Adam", "params": {"lr": 0.5}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.1}})");
  const LoadedConfig loaded = ask(text).load();
  CHECK(verdict(loaded, "optimizer.params.lr") ==
        "no_effect: the scheduler overrules it: scheduler.params.warmup_max_lr is 0.1");
  CHECK(loaded.warnings == std::vector<std::string>{
                               "c.json:1:43: optimizer.params.lr: 0.5 has no effect, the scheduler "
                               "overrules it: scheduler.params.warmup_max_lr is 0.1"});
  CHECK(ask(text, {"scheduler.params.warmup_max_lr=0.5"}).load().warnings.empty());
}

TEST_CASE("training: an optimizer or schedule of type auto is the default one") {
  CHECK(ask(trains_with(R"("optimizer": {"type": "auto", "params": {"lr": 0.25}})"))
            .job()
            .optimizer == OptimizerConfig{.lr = 0.25});
  CHECK(ask(trains_with(R"("scheduler": {"type": "auto"})")).job().schedule == ScheduleConfig{});
}

TEST_CASE(
    "training: OneCycle moves the betas, and what the optimizer's section says has no effect") {
  const auto file = [](const std::string& more) {
    return trains_with(R"("optimizer": {"type": "Adam", "params": {"betas": [0.8, 0.9]}},
  "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2)" +
                       more + "}}");
  };
  const LoadedConfig loaded = ask(file("")).load();
  CHECK(verdict(loaded, "optimizer.params.betas") == "no_effect: cycle_momentum moves the betas");
  CHECK(loaded.warnings.back() ==
        "c.json:1:43: optimizer.params.betas: has no effect: OneCycle's cycle_momentum moves the "
        "betas");
  CHECK(verdict(ask(file(", \"cycle_momentum\": false")).check(), "optimizer.params.betas") ==
        "honoured");
}

TEST_CASE("training: OneCycle cannot move the momentum of SGD") {
  const LoadedConfig loaded = ask(trains_with(R"("optimizer": {"type": "SGD"},
    "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 0.2}})"))
                                  .load();
  CHECK_FALSE(loaded.job.schedule.cycle_momentum);
  CHECK(loaded.warnings ==
        std::vector<std::string>{
            "c.json:2:39: scheduler.params.cycle_momentum: has no effect: SGD has no "
            "betas to move"});
}

TEST_CASE("training: the sections of the ZeRO stages become limits of the job") {
  const Job plain = ask(trains_with(R"("zero_optimization": {"stage": 3})")).job();
  CHECK(plain.zero_stage == 3);
  CHECK(plain.gather == GatherLimits{});
  CHECK(plain.overlap_comm);
  CHECK(plain.reduce == ReduceMode::micro_batch);
  const Job given = ask(trains_with(R"("zero_optimization": {
      "stage": 3, "overlap_comm": false, "reduce_bucket_size": 5e4,
      "stage3_prefetch_bucket_size": 11, "stage3_param_persistence_threshold": 12,
      "stage3_model_persistence_threshold": 13, "stage3_max_live_parameters": 14,
      "stage3_max_reuse_distance": 15})"))
                        .job();
  CHECK(given.gather == GatherLimits{11, 12, 13, 14, 15});
  CHECK_FALSE(given.overlap_comm);
  CHECK(given.reduce_bucket_elements == 50000);
  const Job derived = ask(trains_with(R"("zero_optimization": {
      "stage": 3, "stage3_prefetch_bucket_size": "auto",
      "stage3_param_persistence_threshold": "auto"})"))
                          .job();
  CHECK(derived.gather.prefetch_elements == 768 * 768 * 9 / 10);
  CHECK(derived.gather.param_persistence == 7680);
}

TEST_CASE("training: FSDP's names stand for stages") {
  const auto stage = [](const std::string& name) {
    return ask(trains_with(""), {"dstrain.sharding=" + name}).job().zero_stage;
  };
  CHECK(stage("NO_SHARD") == 0);
  CHECK(stage("SHARD_GRAD_OP") == 2);
  CHECK(stage("_HYBRID_SHARD_ZERO2") == 2);
  CHECK(stage("HYBRID_SHARD") == 3);
  CHECK(stage("FULL_SHARD") == 3);
}
