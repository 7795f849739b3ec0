// Saving a checkpoint: the state register on disk, as whole tensors. `DIR/checkpoints/step_N/` holds one
// safetensors file per rank and manifest.json, which gives the place of each slice of each tensor
// (docs/formats.md), so that any number of ranks can load it. Invariant: a directory step_N with a
// manifest is complete. The directory is built under another name and renamed, so that a crash at any
// time leaves the previous checkpoint loadable.
#pragma once

#include <cstdint>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/storage/checkpoint/manifest.h"
#include "runtime/storage/state.h"

namespace dstrain {

// Saves the slices that every rank owns as `output_dir`/checkpoints/step_N; collective. If several ranks
// own a slice, the first of them writes it. `label` is used on rank 0 only. Throws on every rank or on
// none: RunError, which names file and reason, on the rank that failed, and PeerError, which names that
// rank, on the others. Earlier checkpoints stay as they are.
void save_checkpoint(const std::string& output_dir, const CheckpointLabel& label,
                     const StateRegister& state, Communicator& comm);

// Returns the bytes on disk of a checkpoint of this state, of all ranks; collective.
int64_t checkpoint_bytes(const StateRegister& state, Communicator& comm);

}  // namespace dstrain
