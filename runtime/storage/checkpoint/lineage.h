// Lineage: which checkpoints belong to one run, from its first step to its newest. Every start of a run has
// a random id. A resumed start names the starts before it, and up to which step each of them counts. The
// newest checkpoint is therefore found by descent, not by the largest number. `checkpoints/lineage.json`
// holds the lineage that a folder continues with, a manifest that of its checkpoint (docs/formats.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace dstrain {

// An earlier start of the run.
struct Ancestor {
  std::string id;
  int64_t step = 0;  // the last of its steps that counts
  bool operator==(const Ancestor&) const = default;
};

// A start of a run and its ancestors.
struct Lineage {
  std::string id;  // empty: of a checkpoint of the first format, which had no lineage
  std::vector<Ancestor> ancestors = {};  // oldest first
  std::string job = {};                  // the batch job in which it began; empty: none
  bool operator==(const Lineage&) const = default;

  // Returns whether a checkpoint at `step` of the start `start` belongs to this lineage.
  bool contains(const std::string& start, int64_t step) const;
};

// Returns a lineage without ancestors, with a random id.
Lineage new_lineage(const std::string& job = "");

// Returns a lineage with a random id that continues `parent` from `step`.
Lineage branch_of(const Lineage& parent, int64_t step, const std::string& job = "");

// Returns the lineage of a folder of checkpoints; nothing if the folder has none.
std::optional<Lineage> read_lineage(const std::string& root);
// Throws RunError.
void write_lineage(const std::string& root, const Lineage& lineage);

}  // namespace dstrain
