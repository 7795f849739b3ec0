// PyTorch's communication hooks.
#include "runtime/config/solve/communication/solve_hook.h"

#include <catch2/catch.hpp>

#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

TEST_CASE("hooks: PyTorch's compressing hooks are a type in which gradients travel") {
  const auto hook = [](const std::string& type, const std::string& more = "") {
    return ask(trains_with(more + R"("dstrain": {"comm_hook": {"type": ")" + type + "\"}}"));
  };
  CHECK(hook("noop").job().wire_dtype == DType::f32);
  CHECK(hook("fp16_compress").job().wire_dtype == DType::f16);
  CHECK(hook("bf16_compress").job().wire_dtype == DType::bf16);
  CHECK(hook("bf16_compress", R"("fp16": {"enabled": true}, )").job().wire_dtype == DType::bf16);
  CHECK(hook("bf16_compress", R"("communication_data_type": "bf16", )").job().wire_dtype ==
        DType::bf16);
  CHECK(hook("bf16_compress", R"("communication_data_type": "fp16", )")
            .error()
            .find("bf16_compress sends gradients as bf16, communication_data_type says fp16") !=
        std::string::npos);
}

TEST_CASE("hooks: powerSGD has torch's names and defaults") {
  const auto hook = [](const std::string& members, const std::string& more = "") {
    return ask(trains_with(more + R"("dstrain": {"comm_hook": {)" + members + "}}"));
  };
  const std::string power = R"("type": "powerSGD")";
  CHECK(hook(power).job().hook == HookConfig{.kind = HookKind::power_sgd, .start = 1000});
  CHECK(hook(R"("type": "batched_powerSGD", "start_powerSGD_iter": 2)").job().hook ==
        HookConfig{.kind = HookKind::batched_power_sgd, .start = 2});
  CHECK(
      hook(
          power +
          R"(, "matrix_approximation_rank": 4, "start_powerSGD_iter": 10, "min_compression_rate": 1.5,
                "use_error_feedback": false, "warm_start": false, "orthogonalization_epsilon": 1e-8, "random_seed": 7)")
          .job()
          .hook == HookConfig{.kind = HookKind::power_sgd,
                              .start = 10,
                              .rank = 4,
                              .min_compression = 1.5,
                              .error_feedback = false,
                              .warm_start = false,
                              .orthogonal_eps = 1e-8,
                              .seed = 7});
  CHECK(hook(R"("matrix_approximation_rank": 4)").job().hook == HookConfig{});
  CHECK(verdict(hook(R"("matrix_approximation_rank": 4)").check(),
                "dstrain.comm_hook.matrix_approximation_rank") ==
        "no_effect: the hook is not powerSGD");
  for (const std::string stage : {"2", "3"})
    CHECK(verdict(hook(power, R"("zero_optimization": {"stage": )" + stage + "}, ").check(),
                  "dstrain.comm_hook.type") ==
          "refused: powerSGD needs whole gradients on every rank: use stage 0 or 1, or "
          "fp16_compress or bf16_compress");
}

TEST_CASE("hooks: powerSGD sends fp32 gradients of a whole step") {
  const std::string power = R"("comm_hook": {"type": "powerSGD"})";
  CHECK(ask(trains_with(R"("dstrain": {"reduce": "micro_batch", )" + power + "}"))
            .error()
            .find("powerSGD sends the gradient of a whole step: use \"boundary\"") !=
        std::string::npos);
  CHECK(ask(trains_with(R"("bf16": {"enabled": true}, "data_types": {"grad_accum_dtype": "bf16"},
                           "dstrain": {)" +
                        power + "}"))
            .error()
            .find("powerSGD makes factors of fp32 gradients: use \"fp32\"") != std::string::npos);
  const Job narrow =
      ask(trains_with(R"("communication_data_type": "bf16", "dstrain": {)" + power + "}")).job();
  CHECK(narrow.wire_dtype == DType::bf16);
  CHECK(narrow.hook.kind == HookKind::power_sgd);
}

TEST_CASE("hooks: post_localSGD has torch's names, and groups of the ranks of a host or of one") {
  const auto hook = [](const std::string& members, const std::string& more = "") {
    return ask(trains_with(more + R"("dstrain": {"comm_hook": {)" + members + "}}"), {}, 2);
  };
  const std::string local = R"("type": "post_localSGD")";
  const Job job = hook(local).job();
  CHECK(job.hook == HookConfig{.kind = HookKind::post_local_sgd, .start = 0, .period = 4});
  CHECK(job.shards == ShardConfig{0, true, false});
  const Job alone = hook(local +
                         R"(, "start_localSGD_iter": 100, "period": 8,
                             "post_local_gradient_allreduce": false)")
                        .job();
  CHECK(alone.hook == HookConfig{.kind = HookKind::post_local_sgd, .start = 100, .period = 8});
  CHECK(alone.shards == ShardConfig{1, false, false});
  CHECK(verdict(hook(R"("period": 8)").check(), "dstrain.comm_hook.period") ==
        "no_effect: the hook is not post_localSGD");
  for (const std::string stage : {"1", "2", "3"})
    CHECK(verdict(hook(local, R"("zero_optimization": {"stage": )" + stage + "}, ").check(),
                  "dstrain.comm_hook.type") ==
          "refused: post_localSGD gives groups of ranks weights and optimizer state of their own: "
          "use stage 0, or powerSGD at stage 1");
  const auto refuses = [&](const std::string& more, const std::string& text) {
    CHECK_THAT(hook(local, more).error(), Catch::Contains(text));
  };
  refuses(R"("pipeline": {"stages": 2}, )", "post_localSGD runs without a pipeline: use 1");
  refuses(R"("zero_optimization": {"offload_optimizer": {"device": "cpu"}}, )",
          "post_localSGD averages weights on the device: remove offload_optimizer");
  refuses(R"("optimizer": {"type": "OneBitAdam"}, )", "keep one of the two");
}
