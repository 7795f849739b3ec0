#include "runtime/plan/codecs/lamb_momentum.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/optim/optimizer_rule.h"
#include "runtime/plan/codecs/sign_exchange.h"

namespace dstrain {
namespace {

// A parameter of a unit: where it is, and where the padding behind it ends; its instructions in a step of Lamb.
struct Scaled {
  Range range;
  int64_t end = 0;
  Instruction direction, step;
};

// The update of one unit, in three parts, between which a collective is under way.
class LambUpdate {
 public:
  // `directions` and `steps`: the instructions that would update the unit with the sum of all gradients. A direction is
  // of one or more parameters, a step of one.
  LambUpdate(Program& program, const Job& job, Place place, size_t unit,
             const std::vector<Instruction>& directions, const std::vector<Instruction>& steps)
      : program_(program),
        job_(job),
        rule_(optimizer_rule(job.optimizer.kind)),
        ranks_(place.ranks),
        unit_(program.units[unit]),
        exchange_(program, place, unit, directions.front()),
        count_(static_cast<int64_t>(unit_.parameters.size())) {
    check(steps.size() == unit_.parameters.size(), "{} has a parameter without a step", unit_.name);
    for (size_t i = 0; i < steps.size(); ++i) {
      const Range range = elements_of(parameter(i));
      const int64_t end = i + 1 < steps.size() ? parameter(i + 1).offset : unit_.elements;
      parameters_.push_back({range, end, direction_of(directions, range), steps[i]});
    }
    gradient_ = find("grads");
    momentum_ = find(rule_.slots[0]);
    second_ = find(rule_.slots[1]);
    direction_ = find("direction");
    average_ = find("lamb_average");
    fresh_ = persistent("exp_avg_sq_fresh", unit_.elements);
    factor_ = persistent("lamb_factor", count_);
    scale_ = persistent("momentum_scale", count_);
    sent_ = of_step("scaled_momentum", unit_.elements, DType::f32);
    largest_ = of_step("lamb_largest", count_, DType::f32);
    squares_ = of_step("lamb_squares", 2 * count_, DType::f64);
    keep_state();
  }

  void send() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Scaled& p = parameters_[i];
      exchange_.emit(OpKind::momentum_scale, {part(momentum_, p.range), one(factor_, i)},
                     {one(scale_, i)});
      const Range padded{p.range.begin, p.end};
      exchange_
          .emit(OpKind::scaled_momentum,
                {part(gradient_, padded), part(second_, padded), part(momentum_, padded),
                 one(scale_, i)},
                {part(sent_, padded)})
          .attrs = LocalMomentumAttrs{.ranks = ranks_};
    }
    exchange_.send(sent_, {});
  }

  void forward() { exchange_.forward(); }

  void update() {
    exchange_.receive(sent_);
    exchange_.emit(OpKind::zero, {}, {largest_});
    exchange_.emit(OpKind::zero, {}, {squares_});
    for (size_t i = 0; i < parameters_.size(); ++i) direction(i);
    exchange_.emit(OpKind::lamb_factor, {largest_, squares_}, {factor_}).attrs = LambFactorAttrs{
        .smallest = static_cast<float>(job_.optimizer.one_bit_lamb.factor_min),
        .largest = static_cast<float>(job_.optimizer.one_bit_lamb.factor_max),
        .threshold = static_cast<float>(job_.optimizer.one_bit_lamb.factor_threshold)};
    for (size_t i = 0; i < parameters_.size(); ++i)
      exchange_.emit(OpKind::frozen_lamb,
                     {part(direction_, parameters_[i].range), one(average_, i), one(factor_, i)},
                     parameters_[i].step.writes);
  }

 private:
  const Parameter& parameter(size_t i) const {
    return program_.parameters[static_cast<size_t>(unit_.parameters[i])];
  }

  // Every rank has the whole direction, so it adds the squares of all of it: nothing has to be sent.
  void direction(size_t i) {
    const Scaled& p = parameters_[i];
    const auto attrs = attrs_as<FrozenLambAttrs>(rule_.frozen_attrs(p.direction.attrs));
    const BufferId plain = part(sent_, p.range), decayed = part(direction_, p.range);
    exchange_
        .emit(OpKind::frozen_lamb_direction,
              {part(second_, p.range), p.step.writes[0], one(scale_, i), one(factor_, i)},
              {plain, part(momentum_, p.range), part(fresh_, p.range), decayed, one(largest_, i)})
        .attrs = attrs;
    if (attrs.weight_decay == 0) return;
    exchange_.emit(OpKind::sum_squares, {plain}, {one(squares_, 2 * i)});
    exchange_.emit(OpKind::sum_squares, {decayed}, {one(squares_, 2 * i + 1)});
  }

  // Returns the direction of the run of parameters that the elements are in.
  Instruction direction_of(const std::vector<Instruction>& directions, Range elements) const {
    for (const Instruction& op : directions) {
      const Buffer& moment = program_.at(op.writes[0]);
      const int64_t begin = moment.parent == kNone ? 0 : moment.parent_offset;
      if (begin <= elements.begin && elements.end <= begin + moment.shape.elements()) return op;
    }
    throw InternalError("a parameter has no direction");
  }

  BufferId find(std::string_view what) const {
    return program_.find(std::string(what) + ":" + unit_.name);
  }
  BufferId persistent(const std::string& what, int64_t elements) {
    return program_.add_buffer({.name = what + ":" + unit_.name,
                                .shape = {elements},
                                .memory = MemoryClass::optimizer,
                                .lifetime = Lifetime::persistent});
  }
  BufferId of_step(const std::string& what, int64_t elements, DType dtype) {
    return program_.add_buffer({.name = what + ":" + unit_.name,
                                .shape = {elements},
                                .dtype = dtype,
                                .memory = MemoryClass::optimizer,
                                .lifetime = Lifetime::step});
  }
  BufferId part(BufferId whole, Range range) {
    return program_.view(whole, range.begin, range.size());
  }
  BufferId one(BufferId whole, size_t i) {
    return program_.view(whole, static_cast<int64_t>(i), 1);
  }

  // By parameters, so that the padding of the unit does not matter to other numbers of ranks.
  void keep_state() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const std::string& name = parameter(i).name;
      for (const auto& [slot, values] :
           {std::pair{"exp_avg_sq_fresh", part(fresh_, parameters_[i].range)},
            std::pair{"lamb_average", one(average_, i)}, std::pair{"lamb_factor", one(factor_, i)},
            std::pair{"momentum_scale", one(scale_, i)}})
        program_.codec_state.push_back({.name = name, .slot = slot, .values = values});
    }
  }

  Program& program_;
  const Job& job_;
  const OptimizerRule& rule_;
  const int64_t ranks_;
  const Unit& unit_;
  SignExchange exchange_;
  const int64_t count_;  // of parameters
  std::vector<Scaled> parameters_;
  BufferId gradient_ = kNone, momentum_ = kNone, second_ = kNone, direction_ = kNone,
           average_ = kNone, fresh_ = kNone, factor_ = kNone, scale_ = kNone, sent_ = kNone,
           largest_ = kNone, squares_ = kNone;
};

}  // namespace

void send_lamb_momenta(Program& program, const Job& job, Place place) {
  const OptimizerRule& rule = optimizer_rule(job.optimizer.kind);
  const auto norm =
      std::ranges::find(program.instructions, OpKind::finish_gradients, &Instruction::op);
  const std::vector<Instruction> old(norm + 1, program.instructions.end());
  program.instructions.erase(norm + 1, program.instructions.end());
  std::vector<LambUpdate> units;
  units.reserve(program.units.size());
  for (size_t u = 0; u < program.units.size(); ++u) {
    const BufferId directions = program.find("direction:" + program.units[u].name);
    std::vector<Instruction> of_runs, of_parameters;
    for (const Instruction& op : old) {
      if (op.op == rule.op && program.root(op.writes.back()) == directions) of_runs.push_back(op);
      if (op.op == rule.scaled_op && program.root(op.reads[0]) == directions)
        of_parameters.push_back(op);
    }
    if (!of_runs.empty()) units.emplace_back(program, job, place, u, of_runs, of_parameters);
  }
  exchange_units(units, job.overlap_comm);
}

}  // namespace dstrain
