// RunFacts: what the numbers of a run depend on, as names and texts: two runs whose facts are equal
// compute the same. Ranks compare them before they begin, a checkpoint keeps them, and a resume asks
// which have changed. Stands on config and data. Pure, but for reading the data once.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/data/dataset.h"

namespace dstrain {

// What a change of a fact between a checkpoint and the run that continues it is.
enum class FactChange : uint8_t {
  dangerous,  // the same numbers mean something else: only where the user says so
  meant,      // a decision that a user may take while training goes on
  free,       // how the work is done: nothing is learned otherwise
};

struct RunFact {
  std::string name;   // the key of the configuration, or "data", "vocabulary"
  std::string value;  // as text: "4", "gelu", "1115394 bytes, checksum 7c0ffee5d00dfeed"
  FactChange change = FactChange::dangerous;
  bool operator==(const RunFact&) const = default;
};
using RunFacts = std::vector<RunFact>;

// The facts of a run of `job`, whose vocabulary size and device are settled. Reads all bytes of the data.
RunFacts run_facts(const Job& job, const Dataset& dataset);

// Of names and values: equal for equal facts.
uint64_t fingerprint_of(const RunFacts& facts);

// A fact's fingerprint: ranks that differ in fingerprint_of() find by these which fact it is, for ranks of
// one program have the same names in the same order.
uint64_t fingerprint_of(const RunFact& fact);

}  // namespace dstrain
