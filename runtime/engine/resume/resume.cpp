#include "runtime/engine/resume/resume.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <optional>

#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/optim/optimizer_rules.h"
#include "runtime/storage/mismatches.h"

namespace dstrain {
namespace {

// Returns the consequence of a change that is allowed.
std::string consequence(const std::string& name, const CheckpointLabel& label, const Job& job) {
  const int64_t next = label.step + 1, first = samples_before(label, job);
  if (name == "dstrain.steps") return fmt::format("the run ends after step {}", job.steps);
  if (name == "train_batch_size")
    return fmt::format("step {} takes samples {} to {}", next, first,
                       first + job.batch.train_batch - 1);
  if (name == kLossScaleFact && keeps_loss_scale(label, job))
    return fmt::format("the scale goes on as it was, by the new rules from step {} on", next);
  if (name == "dstrain.data.val_path") return "validations take the samples of the new file";
  if (name == "data" || name == "dstrain.data.val_fraction")
    return fmt::format("from step {} on samples are those of the new data, beginning at place {}",
                       next, first);
  return fmt::format("the new value holds from step {} on", next);
}

// Returns what differs between the checkpoint's value of a fact and its value now; nothing if they are equal, or the
// program that saved the checkpoint did not know the fact, which has no usual value.
std::optional<std::string> change_of(const RunFact& fact, const CheckpointLabel& label) {
  const auto found = label.facts.find(fact.name);
  const std::optional<std::string> was =
      found == label.facts.end() ? fact.usual : std::optional(found->second);
  if (!was || *was == fact.value) return {};
  return fmt::format("{} was {} and is {}", fact.name, *was, fact.value);
}

// Returns a line about --vocab if the text has another vocabulary than that of the run, else an empty text.
std::string vocabulary_hint(const CheckpointInfo& checkpoint, const Job& job,
                            const RunFacts& facts) {
  const auto fact = std::ranges::find(facts, "vocabulary", &RunFact::name);
  const auto was = checkpoint.label.facts.find("vocabulary");
  const auto of_characters = [](const std::string& value) {
    return value.find("characters") != std::string::npos;
  };
  if (fact == facts.end() || was == checkpoint.label.facts.end() || was->second == fact->value ||
      !job.data.vocab.empty() || !of_characters(was->second) || !of_characters(fact->value))
    return "";
  const std::filesystem::path dir = checkpoint.dir + "/";
  return fmt::format("\n  --vocab {} reads the text with the vocabulary of the run",
                     dir.parent_path().parent_path().parent_path().string());
}

// Returns the whole number that a fact of the checkpoint is; nothing if it has no such fact.
std::optional<int64_t> number_in(const CheckpointLabel& label, const std::string& name) {
  const auto fact = label.facts.find(name);
  if (fact == label.facts.end()) return {};
  const std::string& text = fact->second;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return {};
  return number;
}

// The facts that say how far a local step of ZeroOneAdam goes, and which step synchronises.
constexpr std::array<std::string_view, 5> kFactsOfLocalSteps{
    "optimizer.params.lr", "scheduler", "optimizer.params.var_freeze_step",
    "optimizer.params.local_step_scaler", "optimizer.params.local_step_clipper"};

// Returns how many steps before the checkpoint are local and not synchronised.
int64_t open_local_steps_of(const CheckpointLabel& label, OptimizerConfig config,
                            int64_t applied_steps) {
  const auto freeze = number_in(label, "optimizer.params.var_freeze_step"),
             scaler = number_in(label, "optimizer.params.local_step_scaler"),
             clipper = number_in(label, "optimizer.params.local_step_clipper");
  if (!freeze || !scaler || !clipper) return 0;
  config.zero_one = {
      .var_freeze_step = *freeze, .local_step_scaler = *scaler, .local_step_clipper = *clipper};
  return optimizer_rule(config.kind).signs->open_local_steps(config, applied_steps);
}

}  // namespace

std::map<std::string, std::string> kept_facts(const RunFacts& facts) {
  std::map<std::string, std::string> kept;
  for (const RunFact& fact : facts)
    if (fact.change != FactChange::irrelevant && fact.value != fact.usual)
      kept[fact.name] = fact.value;
  return kept;
}

int64_t samples_before(const CheckpointLabel& label, const Job& job) {
  return label.samples >= 0 ? label.samples : label.step * job.batch.train_batch;
}

bool keeps_loss_scale(const CheckpointLabel& label, const Job& job) {
  if (job.dtype != DType::f16 || !job.loss_scale.dynamic) return false;
  if (label.facts.empty()) return true;  // an older dstrain's, taken to be the same
  const auto fact = label.facts.find(std::string(kLossScaleFact));
  return fact != label.facts.end() && fact->second.starts_with(kDynamicLossScale);
}

std::vector<std::string> changes_since(const CheckpointInfo& checkpoint, const Job& job,
                                       const RunFacts& facts) {
  const CheckpointLabel& label = checkpoint.label;
  if (label.facts.empty())
    return {
        fmt::format("{} does not say what its numbers depend on, as an older dstrain saved it: "
                    "model, data, seed and batch are taken to be the same",
                    checkpoint.dir)};
  std::vector<std::string> lines, forbidden, impossible;
  for (const RunFact& fact : facts) {
    const std::optional<std::string> change = change_of(fact, label);
    if (!change) continue;
    if (fact.change == FactChange::impossible)
      impossible.push_back(*change);
    else if (fact.change == FactChange::forbidden)
      forbidden.push_back(*change);
    else
      lines.push_back(fmt::format("{}: {}", *change, consequence(fact.name, label, job)));
  }
  const std::string vocabulary = vocabulary_hint(checkpoint, job, facts);
  if (!impossible.empty())
    fail_user(
        "--resume: {} was saved by a run with other tensors; use its settings, or begin a new run "
        "(with its weights, --init_weights, if the model is the same):\n  {}{}",
        checkpoint.dir, listed(impossible), vocabulary);
  if (!forbidden.empty() && !job.resume_with_changes)
    fail_user(
        "--resume: {} was saved by a run with other settings, which change what the model learns; "
        "use those settings, or accept the changes with --resume_with_changes:\n  {}{}",
        checkpoint.dir, listed(forbidden), vocabulary);
  for (const std::string& change : forbidden)
    lines.push_back(
        change + ": accepted by --resume_with_changes, these are no longer the numbers of one run");
  return lines;
}

void check_frozen_state(const CheckpointInfo& checkpoint, const Job& job, const RunFacts& facts,
                        int64_t applied_steps) {
  const OptimizerConfig& o = job.optimizer;
  const OptimizerRule& rule = optimizer_rule(o.kind);
  if (!rule.signs) return;
  const char* const key = rule.signs->freeze_key;
  const int64_t freeze_step = rule.signs->freeze_step(o);
  const std::optional<int64_t> was = number_in(checkpoint.label, key);
  if (was && *was < applied_steps && applied_steps < freeze_step)
    fail_user(
        "--resume: {} was saved after {} updates, and {} froze its second moment after {}: {} {} "
        "would update it again. Use {}, or resume from an earlier checkpoint",
        checkpoint.dir, applied_steps, rule.name(o), *was, key, freeze_step, *was);
  if (!rule.signs->open_local_steps) return;
  const int64_t open = open_local_steps_of(checkpoint.label, o, applied_steps);
  if (open == 0) return;
  std::vector<std::string> changes;
  for (const RunFact& fact : facts) {
    if (std::ranges::find(kFactsOfLocalSteps, fact.name) == kFactsOfLocalSteps.end()) continue;
    if (const auto change = change_of(fact, checkpoint.label)) changes.push_back(*change);
  }
  if (!changes.empty())
    fail_user(
        "--resume: before {} each rank of {} has moved by itself in {}, which {} not "
        "synchronised yet and belong{} to the settings of then; use those settings, or resume from "
        "a checkpoint after a step that synchronises:\n  {}",
        checkpoint.dir, rule.name(o), counted(open, "step"), open == 1 ? "is" : "are",
        open == 1 ? "s" : "", listed(changes));
}

std::string resume_line(const CheckpointInfo& checkpoint) {
  return fmt::format("resumes after step {} of {}", checkpoint.label.step, checkpoint.dir);
}

std::vector<std::string> passed_over_lines(const CheckpointInfo& checkpoint) {
  std::vector<std::string> lines;
  for (const std::string& one : checkpoint.passed_over)
    lines.push_back("--resume passes over " + one);
  return lines;
}

}  // namespace dstrain
