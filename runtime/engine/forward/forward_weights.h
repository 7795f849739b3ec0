// The weights of a forward pass: where they are, and how they come into memory.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "runtime/config/job.h"
#include "runtime/engine/step/arenas.h"
#include "runtime/engine/step/mesh_comm.h"
#include "runtime/plan/implementations.h"
#include "runtime/storage/state.h"

namespace dstrain {

// The weights of a run, model.safetensors in its output directory or a checkpoint, or those of another folder.
struct WeightsSource {
  std::string run_dir,
      checkpoint = {};  // checkpoint empty: model.safetensors, or the files of an index
  std::string_view option = "--run";  // that names the folder
};

// Receives the bytes that a forward pass takes of its device, before it takes them; throws if there are fewer.
using CheckDeviceBytes = std::function<void(int64_t bytes)>;

// Returns the job with the precision of the files of weights.
Job in_f32(const Job& trained);

// Checks what the files of weights that a forward pass would read say of their tensors, before memory is taken for them.
// `weights`: all of the model's, without tensors. Checkpoints are not looked at. Throws UserError.
void check_forward_weights(const Job& job, const WeightsSource& place,
                           const StateRegister& weights);

// Returns the 16-bit dtype that all matrices of the files have, without those of adapters; f32 if there is none.
DType dtype_of_files(const Job& job, const WeightsSource& place);

// Reads the weights to where `plan` has them, and waits until the memory of `arenas` is present. `job`: in_f32(). Throws
// UserError if they cannot be read.
void load_forward_weights(const Job& job, const WeightsSource& place,
                          const Implementations& implementations, const Plan& plan, Arenas& arenas,
                          MeshComm& mesh, int threads);

}  // namespace dstrain
