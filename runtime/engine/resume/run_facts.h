// RunFacts: everything that the numbers of a run depend on, as names and texts. Two runs with equal facts
// compute the same numbers. Ranks compare their facts before they start, a checkpoint stores them, and a
// resume compares them with those of its job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/family/fact_change.h"
#include "runtime/config/job.h"
#include "runtime/data/dataset.h"

namespace dstrain {

// One fact of a run: the name and the value of something that the numbers of the run depend on.
struct RunFact {
  std::string name;   // a key of the configuration, "data" or "vocabulary"
  std::string value;  // "4", "gelu", "1115394 bytes, checksum 7c0ffee5d00dfeed"
  FactChange change = FactChange::forbidden;
  // The value that a run has whose checkpoint lacks the fact, and with which a checkpoint does not have it; absent: there is
  // none.
  std::optional<std::string> usual{};
  bool operator==(const RunFact&) const = default;
};
using RunFacts = std::vector<RunFact>;

// The fact of the loss scale, which only fp16 has, and how it begins where the scale adapts itself.
inline constexpr std::string_view kLossScaleFact = "fp16", kDynamicLossScale = "dynamic loss scale";

// Returns the facts of a run of `job`, whose vocabulary size and device must be settled. Reads all bytes of
// the data.
RunFacts run_facts(const Job& job, const Dataset& dataset);

// Returns a checksum of all names and values.
uint64_t fingerprint_of(const RunFacts& facts);

// Returns a checksum of one fact's name and value. Ranks whose facts differ find with it which fact does:
// ranks of one program have the same names in the same order.
uint64_t fingerprint_of(const RunFact& fact);

}  // namespace dstrain
