// Checkpoints: the state register on disk, as logical tensors. `DIR/checkpoints/step_N/` holds one
// safetensors file per rank and manifest.json, which says where each slice of each tensor lies, with
// XXH3-64 checksums; so any world size loads it. Stands on comm, safetensors.h, manifest.h.
// Invariant: a directory step_N with a manifest is complete; the manifest is written last, in a
// directory beside that is renamed, so a crash at any moment leaves the previous checkpoint loadable.
// Of a folder's checkpoints those count that are of its line (lineage.h); what is not of it is set aside
// as step_N.abandoned-ID, never removed and never taken unless it is named.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/storage/checkpoint/lineage.h"
#include "runtime/storage/checkpoint/manifest.h"
#include "runtime/storage/state.h"

namespace dstrain {

// Saves the owned slices of every rank's register as `output_dir`/checkpoints/step_N; collective. A slice
// that several ranks own is taken from the first of them. `label` is rank 0's. Throws on every rank or on
// none: RunError naming file and reason where it happened, RunError naming that rank elsewhere; the
// checkpoints that were there stay as they were.
void save_checkpoint(const std::string& output_dir, const CheckpointLabel& label,
                     const StateRegister& state, Communicator& comm);

// What a checkpoint of this state takes on the disk, of all ranks together, in bytes; collective.
int64_t checkpoint_bytes(const StateRegister& state, Communicator& comm);

// A checkpoint that was found.
struct CheckpointInfo {
  std::string dir;
  int ranks = 0;  // that saved it
  CheckpointLabel label = {};
  std::vector<std::string> passed_over = {};  // newer ones of its folder, each with the reason
};

// Looks at a checkpoint before any of its values are read; throws what is wrong with it for this run.
using JudgeCheckpoint = std::function<void(const CheckpointInfo&)>;

// Fills the locals of `state` from the newest complete checkpoint of an output directory, of its
// `checkpoints`, or from one step's directory; collective. A newest one that turns out to be damaged is
// passed over for the one before. Returns what was taken. Throws on every rank or on none; UserError
// naming tensor and file where something is missing, superfluous, of another shape or damaged; what
// `judge` throws on a rank.
CheckpointInfo load_checkpoint(const std::string& dir, StateRegister& state, Communicator& comm,
                               const JudgeCheckpoint& judge = {});

// What load_checkpoint would load, after checking its manifest and the presence and sizes of its
// files, not their contents. For the launching process. Throws UserError.
CheckpointInfo find_checkpoint(const std::string& dir);

// The newest step of which an output directory holds a complete checkpoint that is not set aside. Throws
// UserError where it cannot be read.
std::optional<int64_t> newest_step_in(const std::string& output_dir);

// Removes the checkpoints of an earlier run from an output directory, but those set aside. Throws RunError.
void remove_checkpoints(const std::string& output_dir);

// Makes `line` the one that an output directory goes on with after `step`: what is newer or of another
// line is set aside under a name of its own, and `resumed`, where it is one of the directory that had been
// set aside, gets its name back. Returns the names of what was set aside. Throws RunError.
std::vector<std::string> continue_line(const std::string& output_dir, const Lineage& line,
                                       int64_t step, const std::string& resumed = "");

// Of the checkpoints of the line in an output directory: removes all but the `keep_last` newest (0: all
// stay) and those whose step is a multiple of `keep_every` (0: of none). Throws RunError.
void remove_old_checkpoints(const std::string& output_dir, const Lineage& line, int64_t keep_last,
                            int64_t keep_every);

}  // namespace dstrain
