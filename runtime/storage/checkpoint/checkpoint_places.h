// The directories of checkpoints: DIR/checkpoints/step_N, step_N.tmp while it is written or removed, step_N.old while
// it is replaced, step_N.abandoned-ID of another lineage. Invariant: a directory with a manifest is
// complete; others are ignored. step_N.old stands for step_N if that is missing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/storage/checkpoint/manifest.h"

namespace dstrain {

// The paths that belong to a checkpoint of one step.
struct CheckpointPlace {
  explicit CheckpointPlace(const std::string& output_dir, int64_t step);
  std::string root;      // the folder of checkpoints
  std::string done;      // step_N
  std::string building;  // step_N.tmp
  std::string replaced;  // step_N.old
};

// A directory step_N of a folder of checkpoints, in any state.
struct CheckpointName {
  // step_N, step_N.old, step_N.tmp or step_N.abandoned-ID.
  enum class Kind : uint8_t { done, replaced, building, abandoned };
  int64_t step = 0;
  Kind kind = Kind::done;
  std::string path;
  bool complete = false;  // has a manifest
  // Whether a run can resume from it without naming it.
  bool counts() const { return complete && (kind == Kind::done || kind == Kind::replaced); }
};

// Returns the directories step_N of the folder `root`, newest step first and step_N before step_N.old; none
// if the folder does not exist. Throws UserError if it cannot be read.
std::vector<CheckpointName> names_in(const std::string& root);

// Returns the last part of a path; a '/' at its end does not count.
std::string last_name(const std::string& path);

// Returns whether the last part of a path is the name of a checkpoint, in any state.
bool is_checkpoint_name(const std::string& dir);

// Replaces `done` by the finished `building`. A crash in between leaves one of both complete.
void put_in_place(const CheckpointPlace& place);

// Removes what interrupted saves left in the folder `root`. Complete checkpoints stay.
void remove_leftovers(const std::string& root);

// Returns "rank_00003".
std::string rank_stem(int rank);

// Returns the manifest of the checkpoint in `dir` after checking that its files are there and have the
// stated sizes. Throws UserError.
Manifest read_whole_manifest(const std::string& dir);

// Removes a file, or a directory with all its contents, if it exists. Throws RunError.
void remove_tree(const std::string& path);

// Removes a checkpoint, which is step_N.tmp first: interrupted, that leaves nothing that looks complete, and what is left
// remove_leftovers() removes. Throws RunError.
void remove_checkpoint(const CheckpointName& checkpoint);

// Throws RunError.
void rename_checkpoint(const std::string& from, const std::string& to);

bool is_directory(const std::string& path);

}  // namespace dstrain
