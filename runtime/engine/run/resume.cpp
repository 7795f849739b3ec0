#include "runtime/engine/run/resume.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/core/error.h"
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
  if (name == "data" || name == "dstrain.data.val_fraction")
    return fmt::format("from step {} on samples are those of the new data, beginning at place {}",
                       next, first);
  return fmt::format("the new value holds from step {} on", next);
}

}  // namespace

std::map<std::string, std::string> kept_facts(const RunFacts& facts) {
  std::map<std::string, std::string> kept;
  for (const RunFact& fact : facts)
    if (fact.change != FactChange::irrelevant) kept[fact.name] = fact.value;
  return kept;
}

int64_t samples_before(const CheckpointLabel& label, const Job& job) {
  return label.samples >= 0 ? label.samples : label.step * job.batch.train_batch;
}

std::vector<std::string> changes_since(const CheckpointInfo& checkpoint, const Job& job,
                                       const RunFacts& facts) {
  const CheckpointLabel& label = checkpoint.label;
  if (label.facts.empty())
    return {
        fmt::format("{} does not say what its numbers depend on, as an older dstrain saved it: "
                    "model, data, seed and batch are taken to be the same",
                    checkpoint.dir)};
  std::vector<std::string> lines, forbidden;
  for (const RunFact& fact : facts) {
    const auto was = label.facts.find(fact.name);
    if (was == label.facts.end() || was->second == fact.value) continue;
    const std::string change =
        fmt::format("{} was {} and is {}", fact.name, was->second, fact.value);
    if (fact.change == FactChange::forbidden) {
      forbidden.push_back(change);
    } else {
      lines.push_back(fmt::format("{}: {}", change, consequence(fact.name, label, job)));
    }
  }
  if (!forbidden.empty() && !job.resume_with_changes)
    fail_user(
        "--resume: {} was saved by a run with other settings, which change what the model learns; "
        "use "
        "those settings, or accept the changes with --resume_with_changes:\n  {}",
        checkpoint.dir, listed(forbidden));
  for (const std::string& change : forbidden)
    lines.push_back(
        change + ": accepted by --resume_with_changes, these are no longer the numbers of one run");
  return lines;
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
