// The model's mutable state as it lies in the arenas, on whatever device: fresh weights, and the
// register that weight files and checkpoints read; values pass the host a bounded piece at a time.
// Values are held in f32 masters; a 16-bit run keeps a rounded copy beside them.
#pragma once

#include <array>
#include <functional>

#include "runtime/config/job.h"
#include "runtime/engine/step/arenas.h"
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
  // `plan` is the training plan; all three outlive this.
  ModelState(const Plan& plan, const Arenas& arenas, Communicator& comm, int threads)
      : plan_(plan), arenas_(arenas), comm_(comm), threads_(threads) {}

  // Fresh weights: element i of a parameter is a pure function of seed, its name and i, so that every
  // rank makes its own slices and nothing is sent but 16-bit copies. Collective.
  void initialize(uint64_t seed, const Implementations& implementations) const;
  // Rounds the masters into the run's 16-bit parameters; after any other change of the masters.
  // Collective.
  void publish_masters() const;

  // Elements [begin, begin + values.elements()) of a parameter; null values: none here.
  struct Piece {
    int64_t begin = 0;
    Tensor values;
  };
  // The f32 values of `p` that this rank holds.
  Piece master(const Parameter& p) const { return piece(master_name(), p); }

  // Masters as named weights, in the order of the model: the slices that this rank holds.
  StateRegister weights() const;
  // Masters and optimizer state.
  StateRegister everything() const;

  // Hands rank 0 all f32 masters, a piece of a parameter at a time and in no particular order, through
  // a small buffer: no rank ever holds the whole model. Collective.
  void collect_weights(const std::function<void(const Parameter& p, int64_t begin,
                                                const Tensor& values)>& take) const;

 private:
  // What this rank has of `p` in the unit buffer of that name.
  Piece piece(std::string_view unit_buffer, const Parameter& p) const;
  std::string_view master_name() const;
  void append(std::string_view unit_buffer, std::string_view slot, StateRegister& list) const;
  void publish(const Unit& unit) const;

  const Plan& plan_;
  const Arenas& arenas_;
  Communicator& comm_;
  int threads_;
};

}  // namespace dstrain
