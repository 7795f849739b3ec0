// UnitUpdate: what an optimizer's rule uses to emit the update of one unit. It knows which elements this rank updates,
// gives views of the unit's buffers, and appends instructions to the step. The pass update() (runtime/plan)
// makes one for each unit.
#pragma once

#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/ir/program.h"
#include "runtime/optim/slot_rule.h"

namespace dstrain {

// What a group of parameters has otherwise than others.
struct GroupSettings {
  float weight_decay = 0;
  float lr_scale =
      1;  // of the learning rate, which the decay is multiplied by too where it is decoupled
  bool operator==(const GroupSettings&) const = default;
};

// Elements of a unit whose parameters have the same settings.
struct UpdateRun {
  Range range{};
  GroupSettings settings{};
  UpdateForm form = UpdateForm::elements;
  const Parameter* matrix = nullptr;  // whose range it is, where the form is a matrix
};

// Ranks that have something else of a unit's parameters than this one each.
enum class RankSet : uint8_t {
  slices,  // those that own the slices of the unit
  parts,   // also those of a tensor group, which have other parts of the parameters
};
struct RankNumber {
  int rank = 0, ranks = 1;  // the number of this rank, and how many there are
};

class UnitUpdate {
 public:
  virtual ~UnitUpdate() = default;

  const OptimizerConfig& config() const { return config_; }
  Program& program() { return program_; }
  Unit& unit() { return unit_; }
  UnitBuffers& buffers() { return unit_.buffers; }

  // Returns what this rank updates: runs of parameters with the same settings, and parts of the matrices that are
  // updated as wholes (UpdateForm::matrix). Padding belongs to the run before it, and to none after a matrix.
  const std::vector<UpdateRun>& runs() const { return runs_; }
  // Returns all elements of each parameter of the unit.
  const std::vector<UpdateRun>& parameters() const { return parameters_; }
  // Returns whether parameters of the unit, on whatever rank, are updated as whole matrices.
  bool has_matrices() const;
  // Returns the elements that this rank updates.
  Range updated() const { return updated_; }
  // Returns whether this rank updates a part of the unit alone.
  bool sharded() const { return updated_.size() < unit_.elements; }
  // Returns the number of ranks that own slices of the unit, at every stage, and that of this rank among them.
  int ranks() const { return owner_.ranks; }
  int rank() const { return owner_.rank; }
  // Returns the slice that a rank owns.
  Range slice_of(int rank) const {
    const int64_t size = unit_.elements / owner_.ranks;
    return {rank * size, (rank + 1) * size};
  }
  // Returns the group that instructions are printed under.
  int32_t group() const { return group_; }

  // Returns the values of elements that this rank updates in one of the unit's buffers; kNone where there is no such
  // buffer.
  virtual BufferId part(const UnitBuffer& buffer, Range range) = 0;
  BufferId gradients(Range range) { return part(unit_.buffers.gradients, range); }
  BufferId master(Range range) { return part(unit_.buffers.master(), range); }
  BufferId direction(Range range) { return part(unit_.buffers.direction, range); }
  // The values of slot `i`; kNone where the optimizer keeps no state.
  BufferId slot(size_t i, Range range);
  // The weights in the run's dtype; kNone where they are the masters, or where these are sent to them.
  BufferId copy(Range range);

  // Adds a buffer "WHAT:UNIT" for the optimizer, where its state lives, or where it works.
  BufferId add_buffer(std::string_view what, int64_t elements, Lifetime lifetime,
                      DType dtype = DType::f32);
  // Returns a buffer that is held as the unit's first slot.
  UnitBuffer held_as_state(BufferId id) const;
  // Adds the buffer "NAME:UNIT" of state that an optimizer keeps beside its slots, with a value for each element that
  // this rank updates or for each parameter of the unit; or returns that of the slot whose values it has.
  UnitBuffer add_kept(const SlotRule& rule);
  // Adds several of them, and the values of each parameter as codec state: a checkpoint may lack them. Returns their
  // buffers.
  std::vector<UnitBuffer> keep(std::span<const SlotRule> rules);

  // Appends an instruction to the end of the step.
  Instruction& emit(OpKind op, OpAttrs attrs, std::vector<BufferId> reads,
                    std::vector<BufferId> writes);
  // Adds an instruction to first().
  void emit_first(OpKind op, OpAttrs attrs, std::vector<BufferId> reads,
                  std::vector<BufferId> writes);
  // Returns what comes at the beginning of the step.
  const std::vector<Instruction>& first() const { return first_; }
  // Appends an op that reads the gradients of a range and writes its master weights, its values of `slots` slots from
  // number `first` on, and its weights in the run's dtype.
  void emit_update(OpKind op, OpAttrs attrs, Range range, size_t slots, size_t first = 0);
  // Returns the number of this rank in a set of ranks.
  virtual RankNumber number_among(RankSet set) const = 0;
  // Appends a gather of the equal parts that the ranks of a set have.
  virtual void emit_gather(RankSet set, BufferId mine, BufferId all) = 0;
  // Appends what `transform` appends for the direction of a whole matrix, f32 of its shape, which it changes in place. Where
  // ranks divide the matrix they gather the direction first, so that each has all of it. Returns the elements of the
  // result that are elements `range` of the unit.
  using Transform = std::function<void(BufferId)>;
  virtual BufferId emit_whole(const Parameter& matrix, Range range, const Transform& transform);

 protected:
  // `updated`: the elements that this rank updates; `owner`: as ranks() and rank() have it.
  UnitUpdate(Program& program, Unit& unit, const Job& job, Range updated, RankNumber owner,
             int32_t group);

  // Returns what this rank keeps of the parameter with this number in the unit.
  CodecState kept_of(size_t parameter, const SlotRule& rule, const UnitBuffer& buffer);
  // Adds the view of what this rank has of a matrix in the unit's buffer of directions.
  BufferId add_matrix_direction(const Parameter& matrix);

 private:
  Program& program_;
  Unit& unit_;
  const OptimizerConfig& config_;
  const Range updated_;
  const RankNumber owner_;
  const int32_t group_;
  std::vector<UpdateRun> parameters_, runs_;
  std::vector<Instruction> first_;
};

}  // namespace dstrain
