// What validations decide, and the average of the weights.
#include <catch2/catch.hpp>

#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {
std::string own_keys(const std::string& members) {
  return trains_with("\"dstrain\": {" + members + "}");
}
}  // namespace

TEST_CASE("best model: what validations decide has Hugging Face's names and defaults") {
  CHECK(ask(trains_with("")).job().best == BestModelConfig{});
  const Job job = ask(own_keys(R"("eval_interval": 2, "load_best_model_at_end": true,
                              "metric_for_best_model": "eval_accuracy",
                              "early_stopping_patience": 3, "early_stopping_threshold": 0.25,
                              "save_total_limit": 2)"))
                      .job();
  CHECK(job.best == BestModelConfig{.load_at_end = true,
                                    .metric = "accuracy",
                                    .greater_is_better = true,
                                    .patience = 3,
                                    .threshold = 0.25});
  CHECK(job.keep_last == 2);
  const auto [metric, greater] = GENERATE(table<std::string, bool>(
      {{R"("metric_for_best_model": "val_ema_loss")", false},
       {R"("metric_for_best_model": "ema_loss", "greater_is_better": true)", true},
       {R"("metric_for_best_model": "f1", "greater_is_better": false)", false}}));
  CHECK(ask(own_keys(R"("eval_interval": 2, "early_stopping_patience": 1, )" + metric))
            .job()
            .best.greater_is_better == greater);
}

TEST_CASE("best model: verdicts on what validations decide, and on the average of the weights") {
  const auto [members, key, expected] = GENERATE(table<std::string, std::string, std::string>({
      {R"("load_best_model_at_end": true, "eval_interval": 5)", "dstrain.load_best_model_at_end",
       "honoured"},
      {R"("load_best_model_at_end": true)", "dstrain.load_best_model_at_end",
       "error: it compares validations, and the run has one, after its last step: give "
       "dstrain.eval_interval"},
      {R"("early_stopping_patience": 2)", "dstrain.early_stopping_patience",
       "error: it compares validations, and the run has one, after its last step: give "
       "dstrain.eval_interval"},
      {R"("metric_for_best_model": "loss")", "dstrain.metric_for_best_model",
       "no_effect: neither dstrain.load_best_model_at_end nor dstrain.early_stopping_patience asks "
       "for it"},
      {R"("early_stopping_threshold": 0.5, "load_best_model_at_end": true, "eval_interval": 5)",
       "dstrain.early_stopping_threshold", "no_effect: dstrain.early_stopping_patience is 0"},
      {R"("ema": {"decay": 0.999})", "dstrain.ema.decay", "honoured"},
      {R"("ema": {"decay": 1})", "dstrain.ema.decay",
       "error: expected a number from 0 to below 1, found 1"},
      {R"("ema": {"decay": 0.9}, "comm_hook": {"type": "post_localSGD"})", "dstrain.comm_hook.type",
       "error: dstrain.ema averages the weights of all ranks, and with it each group of ranks has "
       "its own: use noop, or remove dstrain.ema"},
  }));
  INFO(members);
  CHECK(verdict(ask(own_keys(members)).check(), key) == expected);
}

TEST_CASE("best model: the average of the weights needs fp32 masters that all ranks share") {
  CHECK(ask(own_keys(R"("ema": {"decay": 0.999})")).job().optimizer.ema_decay == 0.999);
  const std::string average = R"(, "dstrain": {"ema": {"decay": 0.9}})";
  CHECK(verdict(
            ask(trains_with(R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true})" +
                            average))
                .check(),
            "bf16.bf16_master_weights_and_grads") ==
        "error: dstrain.ema averages fp32 masters: use false, or remove dstrain.ema");
  CHECK(verdict(ask(trains_with(R"("optimizer": {"type": "ZeroOneAdam", "params": {"lr": 0.1}})" +
                                average))
                    .check(),
                "optimizer.type") ==
        "error: dstrain.ema averages the weights of all ranks, and with it each group of ranks has "
        "its own: use AdamW, or remove dstrain.ema");
}
