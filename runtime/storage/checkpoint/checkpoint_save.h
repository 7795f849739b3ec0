// Saving a checkpoint: the state register on disk, as whole tensors. `DIR/checkpoints/step_N/` holds one
// safetensors file per rank and manifest.json, which gives the place of each slice of each tensor
// (docs/formats.md), so that any number of ranks can load it. Invariant: a directory step_N with a
// manifest is complete. The directory is built under another name and renamed, so that a crash at any
// time leaves the previous checkpoint loadable.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "runtime/comm/communicator.h"
#include "runtime/storage/checkpoint/manifest.h"
#include "runtime/storage/on_all_ranks.h"
#include "runtime/storage/state.h"

namespace dstrain {

// Saves the slices that every rank owns as `output_dir`/checkpoints/step_N; collective. If several ranks
// own a slice, the first of them writes it. `label` is used on rank 0 only. Where the disk or a quota lacks the space,
// rank 0 calls `make_room`, and if that returns true, ranks try once more. Earlier checkpoints stay as they are, and so
// they do after a failure, of which nothing else remains. Returns the failure: its error is, on the rank that failed, a
// RunError that names file and reason.
std::optional<AgreedFailure> try_save_checkpoint(
    const std::string& output_dir, const CheckpointLabel& label, const StateRegister& state,
    Communicator& comm, const std::function<bool()>& make_room = [] { return false; });

// The same, but throws the failure's error.
void save_checkpoint(const std::string& output_dir, const CheckpointLabel& label,
                     const StateRegister& state, Communicator& comm);

// Returns the bytes on disk of a checkpoint of this state, of all ranks; collective.
int64_t checkpoint_bytes(const StateRegister& state, Communicator& comm);

}  // namespace dstrain
