// Compares the configured run with its references and says whether it computes what plain training would.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/engine/verify/first_difference.h"
#include "runtime/engine/verify/rank_record.h"
#include "runtime/engine/verify/references.h"

namespace dstrain {

// The records of the three runs of a verification, by rank.
struct VerifiedRuns {
  RankRecord naive;                    // naive_job()
  std::vector<RankRecord> plain;       // plain_job()
  std::vector<RankRecord> configured;  // the small job
};

struct ComparedTensor {
  std::string name;
  // The largest difference of an element of its gradient in the first step from the naive run's, as a share of the
  // largest elements of the terms there, added.
  double gradient_error = 0;
  bool bitwise = false;  // its weights after the last step have the bits of the plain run's
};

struct ComparedStep {
  int64_t step = 0;
  double naive_loss = 0, plain_loss = 0, loss = 0;
  double naive_norm = 0, plain_norm = 0, norm = 0;
};

struct Comparison {
  bool equal = true;                             // all has been compared, and nothing differs
  std::string plain = "plain data parallelism";  // what the plain run is
  Tolerance tolerance;
  std::vector<ComparedTensor> tensors;  // in the order of the model
  std::vector<ComparedStep> steps;
  std::optional<FirstDifference> first;
  // The first step whose loss, or gradient norm unless it is skipped, is no finite number in the plain run and as
  // configured: both diverge, and what follows shows nothing.
  std::optional<int64_t> diverged;
  std::vector<std::string> problems;      // what is not equal, a sentence each
  std::vector<std::string> not_compared;  // what shows nothing, a sentence each
  std::vector<std::string> faults;        // what seeded faults did
};

// Returns "equal", "different", or "not compared", where nothing differs and something shows nothing.
std::string_view verdict_of(const Comparison& comparison);

// `job`: the configured run's. Steps that a run does not have are left out.
Comparison compare_runs(const Job& job, const VerifiedRuns& runs);

// Returns the comparison as a table of tensors, the losses, and a sentence that says whether all is equal.
std::string comparison_text(const Comparison& comparison);
// Returns the comparison as JSON (docs/formats.md).
std::string comparison_json(const Comparison& comparison);

}  // namespace dstrain
