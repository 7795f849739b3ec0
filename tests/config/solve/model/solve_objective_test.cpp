#include "runtime/config/solve/model/solve_objective.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/config/config_fixture.h"

using namespace dstrain;
using namespace dstrain::test;

namespace {

std::string learns(const std::string& objective, const std::string& more = "") {
  return trains_with("\"dstrain\": {\"objective\": {" + objective + "}" + more + "}");
}

std::string said(const std::string& objective, const std::string& key,
                 const std::string& more = "") {
  return verdict(ask(learns(objective, more)).check(), "dstrain." + key);
}

}  // namespace

TEST_CASE("objective: a run learns next tokens, or answers with TRL's defaults") {
  CHECK(ask(trains_with("")).job().objective == Objective{});
  const Job dpo = ask(learns(R"("type": "dpo")")).job();
  CHECK(dpo.objective == Objective{.kind = ObjectiveKind::dpo});
  CHECK((dpo.objective.has_pairs() && dpo.objective.needs_reference()));
  CHECK(dpo.rows_of(3) == 6);
  CHECK(dpo.data.packing == Packing::pad);
  CHECK(ask(learns(R"("type": "dpo")", R"(, "data": {"packing": "pack"})")).job().data.packing ==
        Packing::pack);
  CHECK(dpo.loss_chunks == 1);
  CHECK(ask(learns(R"("type": "dpo", "beta": 0.5, "label_smoothing": 0.1)")).job().objective ==
        Objective{.kind = ObjectiveKind::dpo, .beta = 0.5, .label_smoothing = 0.1});
  CHECK(ask(learns(R"("type": "dpo", "loss_type": "ipo")")).job().objective.loss_type ==
        AnswerLoss::ipo);
  const Job simpo = ask(learns(R"("type": "simpo", "simpo_gamma": 1.5)")).job();
  CHECK(simpo.objective == Objective{.kind = ObjectiveKind::simpo, .simpo_gamma = 1.5});
  CHECK_FALSE(simpo.objective.needs_reference());
  CHECK(ask(learns(R"("type": "orpo")")).job().objective.kind == ObjectiveKind::orpo);
  const Objective kto = ask(learns(R"("type": "kto", "undesirable_weight": 0.5)")).job().objective;
  CHECK(kto == Objective{.kind = ObjectiveKind::kto,
                         .loss_type = AnswerLoss::kto,
                         .undesirable_weight = 0.5});
  CHECK(
      ask(learns(R"("type": "kto", "loss_type": "apo_zero_unpaired")")).job().objective.loss_type ==
      AnswerLoss::apo_zero_unpaired);
  CHECK((kto.rates_answers() && !kto.has_pairs() && kto.needs_reference()));
  CHECK(kto.rows_per_sample() == 2);
  CHECK_FALSE(ask(learns(R"("type": "dpo")")).job().model.gives_score());
}

TEST_CASE("objective: a model with a score is one of transformers' for sequences") {
  for (const auto& [type, architecture] :
       {std::pair<std::string, std::string>{"llama", "LlamaForSequenceClassification"},
        {"gpt2", "GPT2ForSequenceClassification"},
        {"gpt_neox", "GPTNeoXForSequenceClassification"},
        {"gemma3_text", "Gemma3TextForSequenceClassification"}}) {
    const LoadedConfig loaded =
        ask(learns(R"("type": "reward")", R"(, "model": {"type": ")" + type + "\"}")).load();
    CHECK(loaded.job.model.gives_score());
    const auto written = nlohmann::json::parse(loaded.config_json);
    CHECK(written["architectures"][0] == architecture);
    CHECK(written["id2label"].size() == 1);
  }
  CHECK(said(R"("type": "dpo")", "model.architectures",
             R"(, "model": {"type": "llama", "architectures": ["LlamaForSequenceClassification"]})")
            .starts_with("error: such a model gives a score"));
}

TEST_CASE("objective: a setting that it does not have, or that is of next tokens, is an error") {
  CHECK(said(R"("beta": 0.5)", "objective.beta") ==
        "error: next_token has no such setting: remove it");
  CHECK(said(R"("type": "orpo", "loss_type": "ipo")", "objective.loss_type") ==
        "error: orpo has no such setting: remove it");
  CHECK(said(R"("type": "kto", "loss_type": "ipo")", "objective.loss_type") ==
        "error: kto has no loss \"ipo\": use \"kto\" or \"apo_zero_unpaired\"");
  CHECK(said(R"("type": "dpo", "loss_type": "kto")", "objective.loss_type") ==
        "error: dpo has no loss \"kto\": use \"sigmoid\", \"ipo\" or \"hinge\"");
  CHECK(said(R"("type": "dpo", "loss_type": "hinge", "label_smoothing": 0.1)",
             "objective.label_smoothing") ==
        "error: the loss hinge has no such setting: remove it");
  CHECK(said(R"("type": "simpo", "beta": 0)", "objective.beta") ==
        "error: expected a number above 0, found 0");
  CHECK(said(R"("type": "simpo")", "z_loss", R"(, "z_loss": 0.1)") ==
        "error: is of the loss of next tokens, and dstrain.objective is simpo: remove it");
  CHECK(said(R"("type": "reward", "beta": 0.5)", "objective.beta") ==
        "error: reward has no such setting: remove it");
  CHECK(said(R"("type": "dpo", "center_rewards_coefficient": 0.1)",
             "objective.center_rewards_coefficient") ==
        "error: dpo has no such setting: remove it");
  CHECK(said(R"("type": "reward")", "objective.type")
            .ends_with("has no head that gives a score: use a model of transformers"));
  CHECK(said(R"("type": "dpo")", "data.packing", R"(, "data": {"packing": "none"})")
            .ends_with("padding behind it: use \"pad\" or \"pack\", or remove the key"));
  CHECK(said(R"("type": "kto")", "data.packing", R"(, "data": {"packing": "pack"})")
            .ends_with("compares the samples of a micro-batch: use \"pad\", or remove the key"));
  CHECK(said(R"("type": "dpo", "desirable_weight": 2)", "objective.desirable_weight") ==
        "error: dpo has no such setting: remove it");
  CHECK(said(R"("type": "kto", "desirable_weight": 0, "undesirable_weight": 0)",
             "objective.undesirable_weight") ==
        "error: both weights are 0: nothing would be learned");
  CHECK(said(R"("type": "dpo")", "lora.init", R"(, "lora": {"init": "a"})")
            .starts_with("error: dpo compares with the model that the adapters are of"));
  CHECK(said(R"("type": "dpo")", "objective.type", R"(, "model": {"type": "benchmark"})")
            .starts_with("error: the benchmark model predicts no tokens of texts"));
}
