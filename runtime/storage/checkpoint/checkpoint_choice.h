// The choice of the checkpoint that --resume loads: the newest complete one of the directory's lineage
// (lineage.h), or the one that the user names.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/storage/checkpoint/manifest.h"

namespace dstrain {

// A checkpoint that was found.
struct CheckpointInfo {
  std::string dir;
  int ranks = 0;  // that saved it
  CheckpointLabel label = {};
  std::vector<std::string> passed_over = {};  // newer ones of its folder, each with the reason
  // What became of codec state that another run saved, and of values of other groups of ranks; empty if all of it was
  // restored.
  std::vector<std::string> codec_remarks = {};
  int64_t groups = 1;  // of ranks, whose own values were restored
};

// Damaged checkpoints: directory and description of the damage.
using DamagedCheckpoints = std::map<std::string, std::string, std::less<>>;

// A checkpoint that was found, with its manifest.
struct FoundCheckpoint {
  std::string dir;
  Manifest manifest;
  std::vector<std::string> passed_over;
  bool named = false;  // the user named this directory, so that no other one replaces it

  CheckpointInfo info() const;
};

// Returns the checkpoint in `dir`: the newest complete one if `dir` is an output directory or its folder
// `checkpoints`, else the one of the step's directory `dir`. Those in `damaged` are passed over. Checks the
// manifest and the presence and sizes of the files, not their contents. Throws UserError if there is none.
FoundCheckpoint locate_checkpoint(const std::string& dir, const DamagedCheckpoints& damaged = {});

// The same without the manifest, for the launching process.
CheckpointInfo find_checkpoint(const std::string& dir);

}  // namespace dstrain
