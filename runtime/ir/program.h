// Program: the buffers and the instructions of a step, from which a plan is made. Buffers are named, typed
// pieces of memory without an address. Instructions are ops over buffers, in an order that is correct when
// they run one by one. A model emits the forward part and passes (runtime/plan) add the rest. Nothing here
// knows about devices, and of ranks only how they divide units.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/core/input_role.h"
#include "runtime/core/tensor.h"
#include "runtime/ir/op.h"
#include "runtime/ir/tensor_part.h"
#include "runtime/ir/units/unit.h"

namespace dstrain {

// The distribution of the initial values of a parameter: constant, N(0, init_scale), or uniform on
// [-init_scale, init_scale).
enum class Init : uint8_t { zeros, ones, normal, uniform };

// Values that a codec keeps from one step to the next: a part of a persistent buffer, and its place in a checkpoint
// (docs/formats.md). They are f32, or packed u8, which only as many ranks as saved them can read.
struct CodecState {
  std::string name;  // what it belongs to: a parameter or a unit
  std::string slot;  // which of its values: "error"
  BufferId values = kNone;
  // Each data-parallel rank has values of its own, whose sum over ranks is what counts, or their mean; else all have
  // the same.
  bool per_rank = false;
  bool mean = false;
  bool residual = false;  // what a codec has lost, which it adds to what it sends next
  // Each rank has a part of `elements`, from `begin` on, or none (`values` is absent).
  bool sharded = false;
  int64_t begin = 0, elements = 0;
  Init init = Init::zeros;  // zeros, or normal with standard deviation 1, the same on all ranks
  uint64_t seed = 0;
};

// New codec state that a step has computed; it replaces the old state once the step is known not to be skipped.
struct StateCommit {
  BufferId next = kNone, state = kNone;
  bool unscale = false;  // `next` is of the scaled gradient, `state` of the unscaled one
};

// State of a model that is no parameter: f32 values that the forward pass reads, and that change once in every step
// that is not skipped:
//   values = keep * values + share * sum
// `sum` is what the forward pass has computed for it, added over the step's micro-batches and then over data-parallel
// ranks.
struct RegisteredBuffer {
  std::string name{};
  Shape shape{};
  Init init = Init::zeros;  // zeros or ones
  int sublayer = 0;         // number in the whole model
  float keep = 1, share = 0;
  bool per_sample = false;  // `share` is divided by the samples of the global batch
  // Instead of its sum an element has 1 where it is below the mean of all sums, -1 where it is above, else 0.
  bool towards_mean = false;
  BufferId values = kNone;  // kNone: another stage of a pipeline has them
  BufferId sum =
      kNone;  // this rank's, and behind it that of all ranks; kNone: the values stay as they are
};

// Values that never change and that the model has itself: masks, tables of positions. No file has them.
struct ProgramConstant {
  std::string name{};
  BufferId buffer = kNone;  // f32 or i32; kNone: another stage of a pipeline has it
  std::shared_ptr<const std::string> bytes{};  // of all elements, in order
};

// What a loss is a mean over: the targets of the global batch, its samples, or what the model counts of whole micro-batches
// (ModelFamily::weigh). With `targets`, too, the model may count those of its labels itself.
enum class LossWeight : uint8_t { targets, samples, counted };

// A loss of the model. What is differentiated is the sum of all losses, each times its weight. A metric is no part of it.
struct ProgramLoss {
  std::string name{};
  float weight = 1;
  BufferId sum =
      kNone;  // f64 (1): over the targets of this rank, unscaled and without the weight; kNone: another
              // stage of a pipeline has it
  // All ranks of a tensor group have the same sum; else each has that of its own rows.
  bool replicated = false;
  bool is_metric = false;  // a mean that is reported, and not differentiated
  std::string metric{};  // the name under which the mean is reported as a metric; empty: it is none
  // What a metric is a mean over: the sum of the loss of this number, instead of what all losses are; -1: that.
  int over = -1;
};

// When an instruction is issued. A step issues step_begin; then, for every micro-batch, every_micro and
// (in the last one) last_micro in list order; then step_end.
enum class When : uint8_t { step_begin, every_micro, last_micro, step_end };

// The part of a micro-batch's work that an instruction belongs to. The stages of a pipeline run the phases
// of different micro-batches in turns. Where a schedule splits the backward pass, `backward` computes the
// gradients of activations and `weight_grad` those of weights.
enum class Phase : uint8_t { forward, backward, weight_grad };
inline constexpr int kPhases = 3;

// Whether an instruction adds to its output instead of overwriting it: never, in all micro-batches of a step
// but the first, or always.
enum class Accumulate : uint8_t { never, after_first_micro, always };

// One op of a program, with the buffers that it reads and writes.
struct Instruction {
  OpKind op{};
  When when = When::every_micro;
  Accumulate accumulate = Accumulate::never;
  OpAttrs attrs{};
  std::vector<BufferId> reads{};   // in the order of op.h
  std::vector<BufferId> writes{};  // updated in place where op.h says so
  int32_t group = 0;               // index into Program::groups: what it is printed under
  Phase phase = Phase::forward;    // of what is issued for every micro-batch
  int32_t chunk = 0;               // of the pipeline stage's parts of the model: which one
  int32_t sublayer = 0;            // number of the sublayer in the whole model that it belongs to
  // The communicator that carries a collective: an index into the channels of the plan. Channel 0 is the
  // data-parallel group's.
  int32_t channel = 0;
  // Not done in a step that is skipped, as it carries what an optimizer has written.
  bool unless_skipped = false;
};

// Calls f(operand) for what an instruction reads and then for what it writes, but for absent operands.
template <class Op, class F>
void for_operands(Op& op, const F& f) {
  for (auto* const list : {&op.reads, &op.writes})
    for (auto& id : *list)
      if (id != kNone) f(id);
}

// The two matrices of a low-rank adapter: A makes few columns of a product's input, and B the columns that are added to its
// result.
enum class AdapterMatrix : uint8_t { none, a, b };

// A tensor of the model that training changes, unless it is frozen. Its elements are part of a unit.
struct Parameter {
  std::string name{};
  int index = 0;  // in the whole model
  Shape
      shape{};  // of the whole tensor: what is initialised, saved and counted. What is in memory has the shape of `value`:
                // a part of it, where ranks divide it, and there may be further rows of zeros.
  Init init = Init::zeros;
  float init_scale = 0;  // normal: standard deviation; uniform: bound
  UpdateForm form = UpdateForm::elements;
  bool frozen = false;  // training leaves it as it is: no gradient, no optimizer state
  AdapterMatrix adapter = AdapterMatrix::none;
  std::string adapts{};  // the parameter whose product the adapter changes
  // Not none: `value` is bytes, the packed blocks of a frozen weight, which unpack_weight reads.
  BlockFormat blocks = BlockFormat::none;
  int unit = 0;
  int sublayer = 0;  // number in the whole model
  // What this rank has of it, where ranks divide it: those of a tensor group, or of an expert group.
  TensorPart part{};
  bool is_of_experts = false;  // an expert group divides it
  // Where the rows of several ranks make it, the gradient has a term for each of them, one after the other.
  int64_t gradient_terms = 1;
  int64_t offset =
      0;  // elements from the start of the unit, of packed blocks bytes (set by the layout)
  BufferId value = kNone;
  BufferId gradient = kNone;  // f32; set by the backward pass; none if it is frozen
};
// Returns the elements of its unit that a parameter is; bytes where they are packed blocks.
Range elements_of(const Parameter& parameter);

// A layer of the model.
struct Layer {
  std::string name{};
  int64_t number = -1;  // among those that the model's key of layers counts; -1: it is none of them
};

// A run of a layer's operations. A pipeline may be cut in front of it: the activations that are written before it and that
// the operations in it and after it read travel from stage to stage (keep_stage).
struct Sublayer {
  int64_t layer = 0;   // index into Program::layers
  std::string name{};  // within its layer; empty if the layer has no other
};

// An input of the model: a buffer that is loaded with a part of the samples of every micro-batch.
struct ProgramInput {
  std::string name{};
  InputRole role = InputRole::features;
  Shape sample{};           // shape of one sample
  BufferId buffer = kNone;  // (B, sample)
};

// Instructions that are printed together.
struct InstructionGroup {
  std::string name{};  // of a layer, or of what is done
  int unit = -1;       // whose update they are: an index into Program::units; -1: none
};

struct Program {
  DType dtype = DType::f32;  // the run's dtype: parameters, activations and their gradients
  std::vector<Buffer> buffers;
  std::vector<Instruction> instructions;
  std::vector<InstructionGroup> groups{InstructionGroup{}};
  std::vector<Parameter> parameters;
  std::vector<Unit> units;
  std::vector<Layer> layers;        // of the whole model, in order
  std::vector<Sublayer> sublayers;  // of the whole model, in order
  // The parameters of the whole model, without buffers, if the program is the part of a pipeline stage.
  std::vector<Parameter> model;
  std::vector<ProgramInput> inputs;
  BufferId logits = kNone;
  // f32 (B, rows of a sample): of each row the log-probability of its targets together, where the model is not trained and
  // its objective has pairs; else, or where another stage of a pipeline has it, kNone.
  BufferId log_probs = kNone;
  // What codecs keep from step to step.
  std::vector<CodecState> codec_state;
  std::vector<StateCommit> commits;
  std::vector<RegisteredBuffer> registered;      // of the whole model
  std::vector<ProgramConstant> constants;        // of the whole model
  std::vector<ProgramLoss> losses;               // of the whole model
  LossWeight loss_weight = LossWeight::targets;  // of all losses

  BufferId add_buffer(Buffer buffer);
  // Appends an instruction of the end of a step.
  Instruction& add_at_end(OpKind op, std::vector<BufferId> reads, std::vector<BufferId> writes,
                          int32_t group);
  // Returns the sum of the last loss; kNone if the program has none, or its stage has not that one.
  BufferId last_loss() const { return losses.empty() ? kNone : losses.back().sum; }
  // Returns what is differentiated, of the sums of all losses.
  double whole_loss(std::span<const double> sums) const;
  // Returns whether what is differentiated is something else than one loss as it is.
  bool weighs_losses() const {
    return losses.size() > 1 || (losses.size() == 1 && losses[0].weight != 1);
  }
  // Returns the units that training changes. Frozen units come behind them.
  std::span<const Unit> trained_units() const;
  const std::vector<Parameter>& model_parameters() const {
    return model.empty() ? parameters : model;
  }
  Parameter& parameter(int64_t index) { return parameters[static_cast<size_t>(index)]; }
  const Parameter& parameter(int64_t index) const { return parameters[static_cast<size_t>(index)]; }
  Unit& unit(int64_t index) { return units[static_cast<size_t>(index)]; }
  const Unit& unit(int64_t index) const { return units[static_cast<size_t>(index)]; }
  const Buffer& at(BufferId id) const { return buffers[static_cast<size_t>(id)]; }
  Buffer& at(BufferId id) { return buffers[static_cast<size_t>(id)]; }
  // Returns the buffer of the input with this role, of several arrays the first one, or kNone.
  BufferId input(InputRole role) const;
  // Returns the index of a group with this name and unit: the newest group, or a new one.
  int32_t add_group(const std::string& name, int unit = -1);
  // Returns the name of the group that an instruction is printed under.
  const std::string& group_name(const Instruction& op) const {
    return groups[static_cast<size_t>(op.group)].name;
  }
  BufferId find(const std::string& name) const;  // kNone if no buffer has the name
  BufferId root(BufferId id) const;              // the buffer that a view is a part of
  BufferId original(BufferId id) const;  // what a copy of a copy is a copy of; `id` if it is none
  Space space_of(BufferId id) const { return at(root(id)).space; }
  // Returns elements [begin, begin + count) of `whole` as a flat buffer; `whole` itself if that is all of it. The view of a
  // copy is a copy of the view of what `whole` is a copy of.
  BufferId view(BufferId whole, int64_t begin, int64_t count);

 private:
  std::unordered_map<std::string, BufferId> by_name_{};  // the first of each name
};

// Returns the name of a view: of elements, or of rows, [begin, end) of the buffer with this name.
std::string part_name(const std::string& whole, int64_t begin, int64_t end);

}  // namespace dstrain
