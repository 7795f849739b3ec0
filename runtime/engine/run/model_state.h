// ModelState: a rank's weights and optimizer state in the arenas, on any device. It makes fresh weights and
// the StateRegister that weight files and checkpoints read and write. Transfers through the host use a
// buffer of bounded size. Masters are f32, of which a 16-bit run keeps a rounded copy, or a 16-bit run's parameters: if
// the configuration asks for it, and those of frozen parameters.
#pragma once

#include <array>
#include <functional>
#include <string_view>

#include "runtime/config/job.h"
#include "runtime/engine/step/arenas.h"
#include "runtime/engine/step/mesh_comm.h"
#include "runtime/plan/step_kinds.h"
#include "runtime/storage/state.h"

namespace dstrain {

// The part of StepState that outlives a step, as a checkpoint stores it.
struct TrainerScalars {
  std::array<double, 7> values{};

  void store(const StepState& state);
  void load(StepState& state) const;
  void add_to(StateRegister& registered);
};

// Returns whether a weight is made or collected, by its name. Empty: each of them is.
using WantedWeight = std::function<bool(std::string_view parameter)>;

// Which masters are collected.
struct Collected {
  bool average = false;  // shard groups have weights of their own, and their mean is taken
  WantedWeight wanted{};
};

class ModelState {
 public:
  // `plan` is the training plan. The caller must keep plan, arenas and mesh alive.
  ModelState(const Plan& plan, const Arenas& arenas, MeshComm& mesh, int threads)
      : plan_(plan), arenas_(arenas), mesh_(mesh), threads_(threads) {}

  // Makes fresh weights. Element i of a parameter is a pure function of the seed, the parameter's name and i,
  // so every rank makes its own slices, and ranks exchange only what they hold of each other's. Collective.
  void initialize(uint64_t seed, const Implementations& implementations,
                  const WantedWeight& wanted = {}) const;
  // Gives codec state its first values. load() of a checkpoint may replace them.
  void begin_codecs(const Implementations& implementations) const;
  // Makes the parameters that kernels read of the masters: rounds them to the run's dtype where they are not the same
  // buffers, and gathers what this rank holds of other ranks' slices. The caller must call it after it changed masters.
  // Collective.
  void publish_masters() const;

  // What this rank holds of a parameter: values [begin, begin + values.elements()) of its memory there, which has a part
  // of the whole tensor where the ranks of a tensor group divide it (Parameter::part). Null values: this rank holds none. The memory of `values` belongs to the arenas.
  struct Piece {
    int64_t begin = 0;
    Tensor values;
    RemoteMemory* owner = nullptr;  // of their memory; null: the host
  };
  // Returns the masters of `p` that this rank holds.
  Piece master(const Parameter& p) const { return piece("master", p); }

  // Returns the masters that this rank holds, as named weights in the order of the model, and the registered buffers. Those
  // in packed blocks have the format (StateEntry::blocks).
  StateRegister weights() const;
  // Returns the same as checkpoints have them: packed blocks are bytes.
  StateRegister weights_in_checkpoints() const;
  // Returns the same with what this rank reads of them, so that ranks read no element twice: of masters that it holds as a
  // whole, its slice. share_masters() then gives all of them to all ranks.
  StateRegister weights_to_read() const;
  // Returns the optimizer's state of this name that this rank holds, by the names of parameters.
  StateRegister state_to_read(std::string_view slot) const;
  // Collective.
  void share_masters() const;
  // Returns masters, registered buffers, optimizer state and codec state, `differ` of which the shard groups have values of their own.
  StateRegister everything(GroupsDiffer differ = {}) const;

  // Receives elements [begin, begin + values.elements()) of a parameter, of the whole tensor; `values`: f32 on the host.
  using TakePiece = std::function<void(const Parameter& p, int64_t begin, const Tensor& values)>;
  // Calls `take` on rank 0 of the world for all masters of all stages and tensor ranks, a piece of a parameter at a time, in
  // no particular order. The pieces pass through small buffers, so no
  // rank ever holds the whole model. Collective over the world.
  void collect_weights(MeshComm& mesh, const TakePiece& take, const Collected& which = {}) const;

  // Receives the values of a registered buffer, f32 on the host.
  using TakeBuffer = std::function<void(const RegisteredBuffer& b, const Tensor& values)>;
  // Calls `take` on rank 0 of the world for all registered buffers of all stages. Collective over the world.
  void collect_buffers(MeshComm& mesh, const TakeBuffer& take) const;

  // Makes the parameters that kernels read the mean over the shard groups, until restore_own_weights(). Where they are
  // the masters, these are kept in the gradients meanwhile, which no step may use. Collective.
  void use_average() const;
  void restore_own_weights() const;
  // Exchanges the masters of trained parameters with the averages that are kept of them (kWeightAverage), and makes the
  // parameters that kernels read of what are now the masters. A second call restores both. No step may run in between.
  // Collective.
  void exchange_averages() const;

 private:
  // Returns the buffer that holds a unit's masters ("master") or state; of masters without a buffer of their own that
  // of the parameters. kNone if the optimizer has no such state.
  UnitBuffer buffer_of(std::string_view slot, const Unit& unit) const;
  // Returns what this rank holds of `p` there.
  Piece piece(std::string_view slot, const Parameter& p) const;
  // Cuts a slice that this rank holds to what it owns of the parameter.
  void cut_to_owned(StateEntry& entry, const Parameter& p) const;
  void append_buffers(StateRegister& list) const;
  void append_codec_state(StateRegister& list) const;
  void append_sharded(const CodecState& state, StateRegister& list) const;
  void append(std::string_view slot, StateRegister& list, bool differs) const;
  void publish(const Unit& unit) const;
  // Gives what each rank owns of a unit's masters to all ranks, where these hold all of them. Collective.
  void share_masters_of(const Unit& unit) const;
  // Gathers the parts of `peers`, of which `mine` is this rank's, to `all`. Both are in the memory of `owner` (null:
  // the host's). They pass through a buffer on the device, where collectives work. Collective.
  void exchange(const Tensor& mine, const Tensor& all, RemoteMemory* owner,
                Communicator& peers) const;
  // Rounds f32 values to a tensor on the host.
  void round(const float* values, const Tensor& to) const;
  // Rounds the masters of a unit to its parameters at `to`, in the memory of `owner` (null: the host's), or copies them
  // if they have the parameters' type.
  void round_masters(BufferId masters, const Tensor& to, RemoteMemory* owner) const;
  // Calls `take` on the first of the ranks with the same parameters for all masters of this stage, those of this tensor rank
  // where ranks have parts; null: the rank only helps the others. Elements count in the part's memory there, and padding is
  // among them. Ranks of a tensor group have the same pieces of their parts in the same order. Collective over the stage.
  void collect_stage(const TakePiece& take, const Collected& which) const;
  // Returns the link between rank 0 of the world and the first of the ranks of a stage and tensor rank that have the same
  // parameters; on other ranks it has no peer. Collective over the world.
  std::unique_ptr<Communicator> link_to(MeshComm& mesh, int stage, int part) const;
  // Calls `take` for the registered buffers of this stage.
  void take_buffers(const TakeBuffer& take) const;
  // Sends what collect_stage() takes to rank 0 of the world; null: the rank only helps the others.
  void send_stage(Communicator* link, const Collected& which) const;
  // Calls `take` with pieces of the mean of a unit's masters over the shard groups: the first element in the unit, and
  // f32 values on the host. Has the bits of an average in a step. Collective over the data-parallel group.
  void for_average(const Unit& unit,
                   const std::function<void(int64_t begin, const Tensor& values)>& take) const;
  // Copies the values of a flat buffer of the device to another one of the same size.
  void copy_values(BufferId from, BufferId to) const;

  const Plan& plan_;
  const Arenas& arenas_;
  MeshComm& mesh_;
  int threads_;
};

}  // namespace dstrain
