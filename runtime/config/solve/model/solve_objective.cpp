#include "runtime/config/solve/model/solve_objective.h"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "runtime/config/family/family.h"
#include "runtime/config/family/hugging_face.h"
#include "runtime/core/error.h"
#include "runtime/core/fine_tuning/objective_names.h"

namespace dstrain {
namespace {

constexpr std::string_view kType = "dstrain.objective.type",
                           kLossType = "dstrain.objective.loss_type",
                           kBeta = "dstrain.objective.beta",
                           kSmoothing = "dstrain.objective.label_smoothing",
                           kGamma = "dstrain.objective.simpo_gamma",
                           kCenter = "dstrain.objective.center_rewards_coefficient",
                           kArchitectures = "dstrain.model.architectures",
                           kRatio = "dstrain.objective.kd_ratio",
                           kTopK = "dstrain.objective.teacher_top_k",
                           kDesirable = "dstrain.objective.desirable_weight",
                           kUndesirable = "dstrain.objective.undesirable_weight";

template <class Kind>
Kind named(std::string_view names, std::string_view name) {
  return static_cast<Kind>(number_in(names, name));
}

// Refuses a key that the objective, or the loss of DPO, does not have.
void refuse(std::string_view key, bool has, const std::string& where, const Values& values,
            Diagnostics& diagnostics) {
  if (values.given(key) && !has)
    diagnostics.error(key, fmt::format("{} has no such setting: remove it", where));
}

// Returns whether a list of architectures names one with a score.
bool has_score(const Node& list) {
  return std::ranges::any_of(list.items, [](const Node& name) {
    return name.text.ends_with("ForSequenceClassification");
  });
}

// Lets the module of a tensor be trained as a whole beside adapters, as PEFT does with a head that gives a score.
void save_with_adapters(ModelConfig& model, std::string_view tensor) {
  FineTuning tuning = model.fine_tuning();
  if (tuning.lora->saves(tensor)) return;
  tuning.lora->saved.emplace_back(tensor.substr(0, tensor.rfind('.')));
  model.set_fine_tuning(std::move(tuning));
}

}  // namespace

void solve_objective(Job& job, Values& values, Diagnostics& diagnostics) {
  Objective& o = job.objective;
  const std::string type = values.text(kType);
  o.kind = named<ObjectiveKind>(kObjectiveNames, type);
  const bool dpo = o.kind == ObjectiveKind::dpo, simpo = o.kind == ObjectiveKind::simpo;
  const bool compares = o.compares_answers(), rates = o.rates_answers(), distills = o.has_teacher();
  if (dpo || rates) {
    const std::string loss = rates ? values.text(kLossType, "kto", kType) : values.text(kLossType);
    o.loss_type = named<AnswerLoss>(kAnswerLossNames, loss);
    if (!has_loss(o.kind, o.loss_type))
      diagnostics.error(kLossType, fmt::format("{} has no loss \"{}\": use {}", type, loss,
                                               rates ? "\"kto\" or \"apo_zero_unpaired\""
                                                     : "\"sigmoid\", \"ipo\" or \"hinge\""));
  }
  const bool scores = o.scores_answers();
  if (compares && !scores) o.beta = values.real(kBeta);
  if (scores) o.center_rewards_coefficient = values.real(kCenter);
  job.model.set_gives_score(scores);
  const bool smooths = simpo || (dpo && o.loss_type == AnswerLoss::sigmoid);
  if (smooths) o.label_smoothing = values.real(kSmoothing);
  if (simpo) o.simpo_gamma = values.real(kGamma);
  if (rates) {
    o.desirable_weight = values.real(kDesirable);
    o.undesirable_weight = values.real(kUndesirable);
    if (o.desirable_weight == 0 && o.undesirable_weight == 0)
      diagnostics.error(kUndesirable, "both weights are 0: nothing would be learned");
  }
  if (distills) {
    o.kd_ratio = values.real(kRatio);
    o.teacher_top_k = values.integer(kTopK);
  }
  refuse(kRatio, distills, type, values, diagnostics);
  refuse(kTopK, distills, type, values, diagnostics);
  refuse(kLossType, dpo || rates, type, values, diagnostics);
  refuse(kBeta, compares && !scores, type, values, diagnostics);
  refuse(kCenter, scores, type, values, diagnostics);
  refuse(kSmoothing, smooths, dpo ? fmt::format("the loss {}", name_of(o.loss_type)) : type, values,
         diagnostics);
  refuse(kGamma, simpo, type, values, diagnostics);
  refuse(kDesirable, rates, type, values, diagnostics);
  refuse(kUndesirable, rates, type, values, diagnostics);
  const Member* const named = scores ? nullptr : values.given(kArchitectures);
  if (named && has_score(named->value))
    diagnostics.error(kArchitectures,
                      "such a model gives a score, and no probabilities of tokens: "
                      "dstrain.objective.type \"reward\" trains it");
  if (scores && job.model.fine_tuning().lora) save_with_adapters(job.model, kScoreTensor);
  if (o.has_plain_loss()) return;
  const ModelFamily& family = job.model.family();
  if (family.open)
    diagnostics.error(
        kType, fmt::format("the loss of an {} is its own: export the model with it", family.title));
  else if (!family.predicts_tokens() || family.input(InputRole::features))
    diagnostics.error(
        kType, fmt::format("the {} predicts no tokens of texts: use next_token", family.title));
  else if (scores && !family.hugging_face)
    diagnostics.error(
        kType, fmt::format("the {} has no head that gives a score: use a model of transformers",
                           family.title));
}

void check_objective(const Job& job, const Values& values, Diagnostics& diagnostics) {
  if (job.objective.has_plain_loss()) return;
  const std::string_view type = name_of(job.objective.kind);
  for (const std::string_view key : {"dstrain.label_smoothing", "dstrain.z_loss"})
    if (values.given(key) && values.given(key)->value.real != 0)
      diagnostics.error(key, fmt::format("is of the loss of next tokens, and dstrain.objective is "
                                         "{}: remove it",
                                         type));
  if (!job.objective.compares_answers()) return;
  const bool packs = job.data.packing == Packing::pack;
  if (values.given("dstrain.data.packing") && job.data.packing != Packing::pad &&
      !(packs && job.objective.has_pairs()))
    diagnostics.error(
        "dstrain.data.packing",
        fmt::format("a sample of dstrain.objective {} is two answers, a row each with padding "
                    "behind it{}: use \"pad\"{}, or remove the key",
                    type, packs ? ", and its loss compares the samples of a micro-batch" : "",
                    job.objective.has_pairs() ? " or \"pack\"" : ""));
  if (job.objective.needs_reference() && !job.adapters.init.empty())
    diagnostics.error("dstrain.lora.init",
                      fmt::format("{} compares with the model that the adapters are of, and they "
                                  "begin as those of a folder: merge these into the model first "
                                  "(dstrain export RUN --merge), or use simpo or orpo",
                                  type));
}

}  // namespace dstrain
