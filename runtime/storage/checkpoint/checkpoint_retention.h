// Which checkpoints an output directory keeps: old ones are removed, and those that do not belong to the
// run's lineage (lineage.h) are renamed to step_N.abandoned-ID. A renamed checkpoint is never removed, and
// it is loaded only if the user names it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/storage/checkpoint/lineage.h"

namespace dstrain {

// Returns the newest step of which an output directory holds a complete checkpoint that is not abandoned. Throws UserError
// if the directory cannot be read.
std::optional<int64_t> newest_step_in(const std::string& output_dir);

// Returns the directory of the checkpoint of a step in an output directory, whether it is there or not.
std::string checkpoint_directory(const std::string& output_dir, int64_t step);

// Returns whether the checkpoint `dir` is one of an output directory's, by its own path or by that of a link to it.
bool is_checkpoint_of(const std::string& dir, const std::string& output_dir);

// Removes the checkpoints of an earlier run from an output directory, except abandoned ones and `resumed`, which the
// run goes on from. Throws RunError.
void remove_checkpoints(const std::string& output_dir, const std::string& resumed = "");

// Removes those that the end of a run made from an output directory, except abandoned ones and `resumed`. Throws
// RunError.
void remove_end_checkpoints(const std::string& output_dir, const std::string& resumed = "");

// Removes those of `lineage` that the end of a run made before step `before`. Throws RunError.
void remove_end_checkpoints(const std::string& output_dir, const Lineage& lineage, int64_t before);

// Makes `lineage` that of an output directory from `step` on: checkpoints that are newer or of another
// lineage are renamed to abandoned ones. `resumed`, if it is an abandoned one of the directory, gets its
// own name back. Returns the new names. Throws RunError.
std::vector<std::string> continue_lineage(const std::string& output_dir, const Lineage& lineage,
                                          int64_t step, const std::string& resumed = "");

// Removes old checkpoints of `lineage` from an output directory. The `keep_last` newest stay (0: all), and
// those whose step is a multiple of `keep_every` (0: none) or is `best`. One that the end of a run made does not count, as the next
// run replaces it: it stays until `keep_last` newer ones are there. Returns how many it has removed. Throws RunError.
int64_t remove_old_checkpoints(const std::string& output_dir, const Lineage& lineage,
                               int64_t keep_last, int64_t keep_every,
                               std::optional<int64_t> best = {});

}  // namespace dstrain
