// Checkpoints: the state register on disk, as logical tensors. `DIR/checkpoints/step_N/` holds one
// safetensors file per rank and manifest.json, which says where each slice of each tensor lies, with
// XXH3-64 checksums; so any world size loads it. Stands on comm, safetensors.h, manifest.h.
// Invariant: a directory step_N with a manifest is complete; the manifest is written last, in a
// directory beside that is renamed, so a crash at any moment leaves the previous checkpoint loadable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/storage/state.h"

namespace dstrain {

// Saves the owned slices of every rank's register as `output_dir`/checkpoints/step_`step`; collective.
// A slice that several ranks own is taken from the first of them. `summary` is one line for readers of
// the manifest. Throws on every rank or on none: RunError naming file and reason where it happened,
// RunError naming that rank elsewhere; the checkpoints that were there stay as they were.
void save_checkpoint(const std::string& output_dir, int64_t step, const StateRegister& state,
                     Communicator& comm, const std::string& summary = "");

// Fills the locals of `state` from the newest complete checkpoint of an output directory, of its
// `checkpoints`, or from one step's directory; collective. Returns the step. Throws on every rank or
// on none; UserError naming tensor and file where something is missing, superfluous, of another shape
// or damaged.
int64_t load_checkpoint(const std::string& dir, StateRegister& state, Communicator& comm);

// What load_checkpoint would load, after checking its manifest and the presence and sizes of its
// files, not their contents. For the launching process. Throws UserError.
struct CheckpointInfo {
  std::string dir;
  int64_t step = 0;
  int ranks = 0;  // that saved it
  std::string summary;
};
CheckpointInfo find_checkpoint(const std::string& dir);

// The newest step of which an output directory holds a complete checkpoint. Throws UserError where it
// cannot be read.
std::optional<int64_t> newest_step_in(const std::string& output_dir);

// Removes the checkpoints of an earlier run from an output directory. Throws RunError.
void remove_checkpoints(const std::string& output_dir);

}  // namespace dstrain
