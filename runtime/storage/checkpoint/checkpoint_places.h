// Where checkpoints lie: DIR/checkpoints/step_N, under construction step_N.tmp, replaced step_N.old, set
// aside step_N.abandoned-ID. Stands on the file system and manifest.h. Invariant: what has a manifest is
// complete, anything else is as if it were not there; step_N.old counts where step_N is not there.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/storage/checkpoint/checkpoint.h"
#include "runtime/storage/checkpoint/manifest.h"

namespace dstrain {

struct CheckpointPlace {
  explicit CheckpointPlace(const std::string& output_dir, int64_t step);
  std::string root, done, building, replaced;
};

// A directory step_N of a folder of checkpoints, whatever its state.
struct CheckpointName {
  enum class Kind : uint8_t { done, replaced, building, abandoned };
  int64_t step = 0;
  Kind kind = Kind::done;
  std::string path;
  bool complete = false;  // has a manifest
  bool counts() const { return complete && (kind == Kind::done || kind == Kind::replaced); }
};

// Those of `root`, newest step first and step_N before step_N.old. Throws UserError where it cannot be
// read; empty where it is not there.
std::vector<CheckpointName> names_in(const std::string& root);

// Whether the last part of a path is the name of a checkpoint, in whatever state.
bool is_checkpoint_name(const std::string& dir);

// Puts the finished `building` in the place of `done`; a crash on the way leaves one of both whole.
void put_in_place(const CheckpointPlace& place);

// Removes what interrupted saves left in `root`; checkpoints that count stay.
void remove_leftovers(const std::string& root);

// "rank_00003".
std::string rank_stem(int rank);

// The manifest of a checkpoint, after looking whether its files are there and as long as it says. Throws
// UserError.
Manifest read_whole_manifest(const std::string& dir);

// Checkpoints that turned out to be damaged, and how.
using DamagedCheckpoints = std::map<std::string, std::string, std::less<>>;

// The newest complete checkpoint as find_checkpoint finds it, with its manifest.
struct FoundCheckpoint {
  std::string dir;
  Manifest manifest;
  std::vector<std::string> passed_over;
  bool named = false;  // the user named this one: there is no other to fall back to

  CheckpointInfo info() const;
};
FoundCheckpoint locate_checkpoint(const std::string& dir, const DamagedCheckpoints& damaged = {});

// Removes a file, or a directory with all it has; none is no error. Throws RunError.
void remove_tree(const std::string& path);

// Throws RunError.
void rename_checkpoint(const std::string& from, const std::string& to);

bool is_directory(const std::string& path);

}  // namespace dstrain
