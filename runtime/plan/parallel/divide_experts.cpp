#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/ir/rule.h"
#include "runtime/plan/parallel/parallel.h"

namespace dstrain {
namespace {

// Returns whether an op multiplies the rows of experts by their weights.
bool is_grouped_product(const OpAxes& axes) {
  return axes.read(0).has(OperandAxis::routed) && axes.read(1).has(OperandAxis::expert) &&
         axes.write(0).has(OperandAxis::routed);
}

class ExpertPass {
 public:
  ExpertPass(Program& program, const Place& place)
      : program_(program),
        ranks_(place.ranks_in(Axis::expert)),
        rank_(place.rank_in(Axis::expert)),
        channel_(channel_of(place, Axis::expert)) {}

  void run() {
    const std::vector<Instruction> whole = std::move(program_.instructions);
    program_.instructions.clear();
    for (const Instruction& op : whole) {
      like_ = &op;
      divide(op);
    }
  }

 private:
  // What a rank knows of the rows of experts whose ends it has found.
  struct Groups {
    BufferId ends = kNone;    // of the groups of rows that come to this rank
    BufferId counts = kNone;  // of the rows that each rank has for each
  };

  void divide(Instruction op) {
    const OpAxes axes = axes_of(program_, op);
    if (is_grouped_product(axes)) return product(std::move(op));
    if (!is_here(op.reads[0])) {
      for (const BufferId id : op.reads)
        check(!is_here(id), "{} reads rows of experts that are on other ranks",
              dstrain::name_of(op.op));
      return keep(std::move(op));
    }
    if (axes.read(0).has(OperandAxis::routed)) {  // the rows of the micro-batch are made of them
      op.reads[0] = returned(op.reads[0]);
      return keep(std::move(op));
    }
    check(maps_elements(axes),
          "{} works on rows of experts, which ranks divide, and not on each element",
          dstrain::name_of(op.op));
    for (const BufferId id : op.reads)
      check(id == kNone || is_here(id), "{} reads rows of experts beside others",
            dstrain::name_of(op.op));
    for (const BufferId id : op.writes) make_room(id, here_.at(op.reads[0]));
    keep(std::move(op));
  }

  // The rows go to where the weights are.
  void product(Instruction op) {
    const BufferId ends = op.reads[2];
    const Groups groups = groups_of(ends);
    op.reads[0] = sent(op.reads[0], ends);
    take_part(op.reads[1]);
    op.reads[2] = groups.ends;
    op.attrs = GroupedAttrs{.senders = ranks_};
    make_room(op.writes[0], ends);
    keep(std::move(op));
  }

  void keep(Instruction op) { program_.instructions.push_back(std::move(op)); }
  Instruction& emit(OpKind kind, OpAttrs attrs, std::vector<BufferId> reads,
                    std::vector<BufferId> writes) {
    keep({.op = kind,
          .attrs = std::move(attrs),
          .reads = std::move(reads),
          .writes = std::move(writes),
          .group = like_->group,
          .sublayer = like_->sublayer});
    return program_.instructions.back();
  }

  bool is_here(BufferId id) const { return here_.contains(id); }

  Groups groups_of(BufferId ends) {
    const auto [known, is_new] = groups_.try_emplace(ends);
    if (!is_new) return known->second;
    const int64_t experts = program_.at(ends).shape.elements();
    check(experts % ranks_ == 0, "{} experts are not divided evenly among {} ranks", experts,
          ranks_);
    const auto integers = [&](const std::string& what, Shape shape) {
      return program_.add_buffer(
          {.name = what + ":" + program_.at(ends).name, .shape = shape, .dtype = DType::i32});
    };
    const BufferId all = integers("all_ends", {ranks_, experts});
    known->second = {integers("here", {experts}), integers("counts", {ranks_, ranks_})};
    emit(OpKind::all_gather, {}, {ends}, {all}).channel = channel_;
    emit(OpKind::expert_ends, ExpertEndsAttrs{.ranks = ranks_, .rank = rank_}, {all},
         {known->second.ends, known->second.counts});
    return known->second;
  }

  // Makes a value one of the rows that have come to this rank, which are as many as those of all ranks at most.
  void make_room(BufferId id, BufferId ends) {
    program_.at(id).shape.dims[0] *= ranks_;
    here_[id] = ends;
  }

  // Returns the rows that come to this rank, of all ranks' `x`.
  BufferId sent(BufferId x, BufferId ends) {
    if (is_here(x)) return x;
    const auto known = sent_.find(x);
    if (known != sent_.end()) return known->second;
    const BufferId come = like(x, "come:" + program_.at(x).name);
    sent_[x] = come;
    make_room(come, ends);
    emit(OpKind::exchange_rows, {}, {x, groups_of(ends).counts}, {come}).channel = channel_;
    return come;
  }

  // Returns the rows that this rank has sent, as they come back.
  BufferId returned(BufferId y) {
    const auto known = returned_.find(y);
    if (known != returned_.end()) return known->second;
    const BufferId back = like(y, "back:" + program_.at(y).name);
    program_.at(back).shape.dims[0] /= ranks_;
    returned_[y] = back;
    emit(OpKind::exchange_rows, ExchangeAttrs{.back = true}, {y, groups_of(here_.at(y)).counts},
         {back})
        .channel = channel_;
    return back;
  }

  BufferId like(BufferId id, std::string name) {
    const Buffer& of = program_.at(id);
    return program_.add_buffer({.name = std::move(name), .shape = of.shape, .dtype = of.dtype});
  }

  void take_part(BufferId weight) {
    const int index = program_.at(weight).parameter;
    check(index >= 0, "the weight of experts {} is no parameter", program_.at(weight).name);
    Parameter& p = program_.parameter(index);
    const TensorPart part{.by = TensorPart::By::rows,
                          .parts = static_cast<int>(ranks_),
                          .part = static_cast<int>(rank_)};
    if (p.is_of_experts) return;
    check(p.part.by == TensorPart::By::nothing, "{} is divided in two ways", p.name);
    p.part = part;
    p.is_of_experts = true;
    program_.at(weight).shape = held_shape(part, p.shape);
  }

  Program& program_;
  const int64_t ranks_, rank_;
  const int32_t channel_;
  const Instruction* like_ = nullptr;            // the whole model's instruction in hand
  std::unordered_map<BufferId, Groups> groups_;  // by the ends of this rank's own rows
  std::unordered_map<BufferId, BufferId>
      here_;  // rows that have come, and the ends that they follow
  std::unordered_map<BufferId, BufferId> sent_, returned_;
};

}  // namespace

void divide_experts(Program& program, const Place& place) {
  if (place.ranks_in(Axis::expert) > 1) ExpertPass(program, place).run();
}

}  // namespace dstrain
