// Where checkpoints lie: DIR/checkpoints/step_N, under construction step_N.tmp, replaced step_N.old.
// Stands on the file system and manifest.h. Invariant: what has a manifest is complete, anything else
// is as if it were not there; step_N.old counts where step_N is not there.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/storage/checkpoint.h"
#include "runtime/storage/manifest.h"

namespace dstrain {

struct CheckpointPlace {
  explicit CheckpointPlace(const std::string& output_dir, int64_t step);
  std::string root, done, building, replaced;
};

// Puts the finished `building` in the place of `done`; a crash on the way leaves one of both whole.
void put_in_place(const CheckpointPlace& place);

// Removes what interrupted saves left in `root`; checkpoints that count stay.
void remove_leftovers(const std::string& root);

// "rank_00003".
std::string rank_stem(int rank);

// The newest complete checkpoint as find_checkpoint finds it, with its manifest.
struct FoundCheckpoint {
  std::string dir;
  Manifest manifest;
};
FoundCheckpoint locate_checkpoint(const std::string& dir);

// Removes a file, or a directory with all it has; none is no error. Throws RunError.
void remove_tree(const std::string& path);

}  // namespace dstrain
