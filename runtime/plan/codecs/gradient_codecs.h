// The codecs of gradients that ranks add.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/ir/op.h"
#include "runtime/plan/codecs/codec.h"

namespace dstrain {

// What codecs of the gradients of one unit have in common.
class GradientCodec : public Codec {
 public:
  GradientCodec(const CodecPlan& plan, int unit, StepGradients& step);

 protected:
  Program& program() const { return plan_.program; }
  const CodecPlan& plan() const { return plan_; }
  Unit& unit() const { return program().unit(unit_); }
  int unit_index() const { return unit_; }
  // The axes along which ranks add this unit's gradients.
  Axes axes() const { return axes_; }
  // Returns whether ranks add after each micro-batch, and so add sums to those of the micro-batches before.
  bool each_micro() const { return plan_.residency.reduce == ReduceMode::micro_batch; }
  // Returns whether each rank needs the sum of its own slice alone.
  bool scattered() const { return plan_.residency.optimizer != Held::whole; }
  // Returns this rank's own gradients.
  const UnitBuffer& own() const {
    return each_micro() ? unit().buffers.micro_gradients : unit().buffers.gradients;
  }
  // Returns the slice that this rank owns of a buffer of the unit: the buffer itself if it holds nothing else.
  BufferId slice_of(const UnitBuffer& buffer) const;
  // Appends what adds a sum to elements of the step's gradients, or replaces them where ranks add once a step.
  void add_to_step(const Instruction& like, BufferId sum, BufferId gradients,
                   std::vector<Instruction>& list) const;

 private:
  CodecPlan plan_;
  StepGradients& step_;
  int unit_;
  Axes axes_;
};

// They travel in the wire's dtype. Each rank rounds its own once and the sum is rounded once more, even where nothing is
// sent.
class WireGradients : public GradientCodec {
 public:
  WireGradients(const CodecPlan& plan, int unit, StepGradients& step);
  void send(const Instruction& like, std::vector<Instruction>& list) override;
  void receive(std::vector<Instruction>& list) override;

 protected:
  // Leaves out the elements of the unit in front of `begin`: what this rank has of them is the sum already.
  void add_from(int64_t begin) { added_.begin = begin; }

 private:
  bool alone() const;
  bool narrow() const { return plan().residency.wire_dtype != DType::f32; }
  // Returns the elements that ranks add of a buffer of the whole unit.
  BufferId added(BufferId whole) const {
    return program().view(whole, added_.begin, added_.size());
  }
  void add(std::vector<Instruction>& list, Instruction op) const;

  Range added_;  // of the unit
  Instruction like_{};
  UnitBuffer sent_{};
};

// Returns whether the instruction adds rows to those of a table that tokens name: operand 0 has the rows, operand 1 the
// tokens.
bool puts_token_rows(const Program& program, const Instruction& op);

// A micro-batch changes the rows of the embedding's table that its tokens have, so ranks send these rows in place of the
// table. The rows of all ranks lie one behind the other, in rank order, in the run's dtype; the instruction that makes the
// table's gradient adds them in that order in f32, so that every rank has the same bits. What follows in the unit, the
// position table and the padding, is added over ranks as it is.
class TokenRows final : public WireGradients {
 public:
  TokenRows(const CodecPlan& plan, int unit, StepGradients& step);
  void prepare(Instruction& writer, std::vector<Instruction>& list) override;

 private:
  BufferId add_gathered(const std::string& name, BufferId part) const;
};

// An expert group makes the gradients of its experts of the rows of all its ranks, a term of each rank (Parameter::
// gradient_terms). Ranks with the same experts exchange the terms of their slices, as they would their own gradients if each
// had all experts, and add those of all data-parallel ranks in the order of these. So the sums have the same bits however many
// ranks divide the experts. Each term is rounded once to the wire's dtype, and the sum once more.
class ExpertTerms final : public GradientCodec {
 public:
  ExpertTerms(const CodecPlan& plan, int unit, StepGradients& step);
  void send(const Instruction& like, std::vector<Instruction>& list) override;
  void receive(std::vector<Instruction>& list) override;

 private:
  void pack(const Parameter& p, Range elements, std::vector<Instruction>& list);
  void zero(Range elements, std::vector<Instruction>& list);
  // Calls take(elements, term, where it is sent from) for the part of `elements` that each rank owns, and each term.
  template <class Take>
  void for_slices(Range elements, const Take& take);
  BufferId add_terms(std::vector<Instruction>& list);
  // In the wire's dtype by default.
  BufferId add_buffer(const std::string& what, int64_t elements,
                      std::optional<DType> dtype = {}) const;
  void emit(Instruction op, std::vector<Instruction>& list) const;

  int64_t ranks_, terms_;  // ranks with the same experts, and ranks of the expert group
  int64_t slice_;          // elements that each rank owns
  Instruction like_{};
  BufferId parts_ = kNone;  // (ranks, terms, slice): what is sent, then what has come
};

// qgZ: gradients travel as int4 (runtime/ir/quantized.h) straight to the ranks that add them. Groups of ranks of a host take
// two hops: within the group, where each rank adds what its peers have for the ranks with its number in all groups, and
// then among those. Sums are f32, in the order of ranks and then of groups, and each hop packs once. With LoCo a rank keeps
// what packing loses, in both hops, and packs it with the gradients of the next step.
class Int4Gradients final : public GradientCodec {
 public:
  Int4Gradients(const CodecPlan& plan, int unit, StepGradients& step);
  void send(const Instruction& like, std::vector<Instruction>& list) override;
  void forward(std::vector<Instruction>& list) override;
  void receive(std::vector<Instruction>& list) override;

 private:
  Instruction issued(OpKind op, BufferId read, BufferId write) const;
  BufferId add_packed(const std::string& what, Shape shape) const;
  BufferId exchange(BufferId packed, const std::string& what, Axes group,
                    std::vector<Instruction>& list) const;
  void feed_back(Instruction& pack, const std::string& slot) const;
  void measure(std::string_view of, BufferId exact, BufferId packed, int64_t first,
               std::vector<Instruction>& list) const;
  BufferId unpack(BufferId packed, int64_t first, std::vector<Instruction>& list) const;
  void clear_padding(BufferId gradients, std::vector<Instruction>& list) const;

  int64_t part_;  // elements that each rank owns
  Instruction like_{};
  BufferId received_ = kNone;  // packed
  bool forwarded_ = false;     // the last hop has begun
};

}  // namespace dstrain
