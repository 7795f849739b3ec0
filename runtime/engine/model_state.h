// The model's mutable state as it lies in the arenas: fresh weights, and the register that weight files
// and checkpoints read. Values are held in f32 masters; a 16-bit run keeps a rounded copy beside them.
#pragma once

#include <array>

#include "runtime/config/job.h"
#include "runtime/engine/arenas.h"
#include "runtime/storage/state.h"

namespace dstrain {

// Everything of StepState that outlives a step, in a form that a checkpoint can hold.
struct TrainerScalars {
  std::array<double, 7> values{};

  void store(const StepState& state);
  void load(StepState& state) const;
  void add_to(StateRegister& registered);
};

class ModelState {
 public:
  // `plan` is the training plan; both outlive this.
  ModelState(const Plan& plan, const Arenas& arenas, int threads)
      : plan_(plan), arenas_(arenas), threads_(threads) {}

  // Fresh weights: element i of a parameter is a pure function of seed, its name and i.
  void initialize(uint64_t seed) const;
  // Rounds the masters into the run's 16-bit parameters; after any other change of the masters.
  void publish_masters() const;

  // The f32 values of parameter `p`, this rank's part of it (all of it at stage 0).
  Tensor master(const Parameter& p) const;
  // Masters as named weights, in the order of the model.
  StateRegister weights() const;
  // Masters and optimizer state.
  StateRegister everything() const;

 private:
  Tensor slice(std::string_view unit_buffer, const Parameter& p) const;  // null: no such buffer

  const Plan& plan_;
  const Arenas& arenas_;
  int threads_;
};

}  // namespace dstrain
