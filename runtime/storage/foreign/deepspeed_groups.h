// DeepSpeedGroups: values of each parameter that the ranks of stages 1 to 3 keep in parts, in their files *_optim_states.pt:
// the masters, or what the optimizer keeps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/storage/foreign/deepspeed_files.h"
#include "runtime/storage/foreign/foreign_weights.h"

namespace dstrain {

// Returns the value of a key. Throws UserError if there is none.
PickleValue deepspeed_member(PickleValue of, std::string_view name);

// Returns whether a type is F32, BF16, F16 or F64.
bool is_deepspeed_float(const SafetensorsType& type);

// Returns the optimizer's own part of what a rank of such a stage has saved.
PickleValue deepspeed_optimizer(PickleValue rank, int64_t stage);

// Returns the stage of ZeRO of what a rank has saved.
int64_t deepspeed_stage(PickleValue rank);

// Returns the values of a dict whose keys are integers, in the order of these. Throws UserError for other keys.
std::vector<PickleValue> deepspeed_numbered(PickleValue dict);

// Returns a parameter of a dict of names and sizes, in f32 and without its elements; `elements` becomes their number.
ForeignTensor deepspeed_tensor(PickleValue shapes, size_t pair, int64_t& elements);

class DeepSpeedGroups {
 public:
  // Reads where the values are. slot: the name of the optimizer's state; empty: the masters. The caller keeps both alive.
  // Throws UserError.
  DeepSpeedGroups(const DeepSpeedFiles& files, ForeignWeights& weights, std::string_view slot = {});

  int64_t stage() const { return stage_; }
  size_t ranks() const { return ranks_.size(); }
  // Adds the parameters of `shapes` (param_shapes of the model's file), group by group, to the weights.
  void add(PickleValue shapes);

 private:
  // Elements that lie one after the other.
  using Flat = std::vector<ForeignPiece>;

  static int64_t elements_of(const Flat& flat);
  // Appends elements [begin, begin + count) of `flat` to `to`. Returns how many of them it lacks.
  static int64_t append_part(const Flat& flat, int64_t begin, int64_t count, Flat& to);
  // Reads the parts of all groups that a rank has.
  void read_rank(const TorchFile& file, PickleValue state, std::string_view slot);
  void check_rank_count(PickleValue count) const;
  void read_paddings(PickleValue state);
  void add_groups(PickleValue shapes);
  void add_stage_3(PickleValue shapes);

  const DeepSpeedFiles& files_;
  ForeignWeights& weights_;
  int64_t stage_ = 0;
  std::vector<Flat> ranks_;  // the values of each rank, by groups
  std::vector<std::vector<int64_t>> paddings_;
};

}  // namespace dstrain
