// Lineage: which checkpoints are one run's, from its first step to its newest. Every start of a run has an
// id of its own; one that resumes names the starts before it, and up to which step each of them counts.
// `checkpoints/lineage.json` says which line the folder goes on with; a manifest, of which line its
// checkpoint is. So what is newest is decided by descent, not by the largest number.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

namespace dstrain {

struct Ancestor {
  std::string id;
  int64_t step = 0;  // the last of its steps that counts
  bool operator==(const Ancestor&) const = default;
};

struct Lineage {
  std::string id;  // empty: of a checkpoint that was saved before there were lines
  std::vector<Ancestor> ancestors = {};  // oldest first
  std::string job = {};                  // the batch job in which it began; empty: none
  bool operator==(const Lineage&) const = default;

  // Whether a checkpoint of the start `of`, of this step, lies on this line.
  bool holds(const std::string& of, int64_t step) const;
};

// A line that begins now, its id random.
Lineage new_lineage(const std::string& job = "");

// A line that begins now and goes on from `step` of `parent`.
Lineage branch_of(const Lineage& parent, int64_t step, const std::string& job = "");

nlohmann::json to_json(const Lineage& lineage);
// Throws nlohmann::json::exception where it is not one.
Lineage lineage_from(const nlohmann::json& object);

// The line of a folder of checkpoints; nothing where it does not say.
std::optional<Lineage> read_lineage(const std::string& root);
// Throws RunError.
void write_lineage(const std::string& root, const Lineage& lineage);

}  // namespace dstrain
