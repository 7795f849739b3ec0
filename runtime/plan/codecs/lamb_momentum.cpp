#include "runtime/plan/codecs/lamb_momentum.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/optim/optimizer_rules.h"
#include "runtime/plan/codecs/frozen_slices.h"
#include "runtime/plan/codecs/sign_exchange.h"

namespace dstrain {
namespace {

// A parameter of a unit: where it is, and where the padding behind it ends; the elements that this rank updates, which
// may be none, and the instructions for them in a step of Lamb.
struct Scaled {
  Range range;
  int64_t end = 0;
  Range own;
  Instruction direction, step;
};

// What ends the step of a unit if ranks add its gradients. A direction is of one or more parameters, a step of one;
// gathers are those of the weights that have been updated.
struct LambEnd {
  std::vector<Instruction> directions, steps, gathers;
};

// The update of one unit, in three parts, between which a collective is under way.
class LambUpdate {
 public:
  LambUpdate(Program& program, const Job& job, Place place, size_t unit, StepKind kind,
             const LambEnd& end)
      : program_(program),
        job_(job),
        rule_(optimizer_rule(job.optimizer.kind)),
        place_(place),
        unit_(program.units[unit]),
        gathers_momentum_(kind == StepKind::whole_momentum),
        gathers_(end.gathers),
        exchange_(program, place, unit, end.directions.front()),
        count_(static_cast<int64_t>(unit_.parameters.size())) {
    gradient_ = unit_.buffers.gradients;
    momentum_ = unit_.buffers.slots[0].values;
    second_ = unit_.buffers.slots[1].values;
    direction_ = unit_.buffers.direction;
    average_ = unit_.buffers.averages;
    updated_ = range_of(second_, unit_, place);
    add_parameters(end);
    fresh_ = held_as(second_, persistent("exp_avg_sq_fresh", updated_.size()));
    factor_ = persistent("lamb_factor", count_);
    scale_ = persistent("momentum_scale", count_);
    if (sharded()) {
      sent_ = {.id = persistent("scaled_momentum", unit_.elements)};
      came_ = held_as(second_, of_step("own_momentum", updated_.size(), DType::f32));
      slices_.emplace(program, place, unit_, momentum_.id, second_.id, sent_.id);
    } else {
      sent_ = came_ = {.id = of_step("scaled_momentum", unit_.elements, DType::f32)};
    }
    const int64_t rows = sharded() ? place.ranks() : 1;
    largest_ = of_step("lamb_largest", rows * count_, DType::f32);
    squares_ = of_step("lamb_squares", place.ranks() * 2 * count_, DType::f64);
    own_largest_ = row_of(largest_, rows);
    own_squares_ = sharded() ? row_of(squares_, rows) : squares_;
    keep_state();
  }

  // Appends what makes the momentum whole to the beginning of a step.
  void append_gathers(std::vector<Instruction>& begin) {
    if (slices_ && gathers_momentum_) slices_->append_gathers(exchange_.like(), begin);
  }

  void send() {
    // Later steps of sharded state have what came back: the momentum, times its scale.
    const bool of_scaled = sharded() && !gathers_momentum_;
    const UnitBuffer& had = sharded() ? sent_ : momentum_;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const Scaled& p = parameters_[i];
      if (!of_scaled)
        exchange_.emit(OpKind::momentum_scale, {part(had, p.range), one(factor_, i)},
                       {one(scale_, i)});
      const Range padded{p.range.begin, p.end};
      const BufferId second =
          slices_ ? program_.view(slices_->bits(), padded.begin / 8, padded.size() / 8)
                  : part(second_, padded);
      const BufferId sent = part(sent_, padded);
      exchange_
          .emit(OpKind::scaled_momentum,
                {part(gradient_, padded), second, sharded() ? sent : part(had, padded),
                 one(scale_, i)},
                {sent})
          .attrs = LocalMomentumAttrs{.ranks = place_.ranks(), .of_scaled = of_scaled};
    }
    exchange_.send(sent_.id, {});
  }

  void forward() { exchange_.forward(); }

  void update() {
    exchange_.receive(sent_.id);
    // What came stays as it is for the next step.
    if (sharded()) exchange_.emit(OpKind::accumulate, {part(sent_, updated_)}, {came_.id});
    exchange_.emit(OpKind::zero, {}, {own_largest_});
    exchange_.emit(OpKind::zero, {}, {own_squares_});
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (parameters_[i].own.size() > 0) direction(i);
    if (sharded()) {
      exchange_.emit(OpKind::all_gather, {own_largest_}, {largest_});
      exchange_.emit(OpKind::all_gather, {own_squares_}, {squares_});
    }
    exchange_.emit(OpKind::lamb_factor, {largest_, squares_}, {factor_}).attrs = LambFactorAttrs{
        .smallest = static_cast<float>(job_.optimizer.one_bit_lamb.factor_min),
        .largest = static_cast<float>(job_.optimizer.one_bit_lamb.factor_max),
        .threshold = static_cast<float>(job_.optimizer.one_bit_lamb.factor_threshold)};
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (const Scaled& p = parameters_[i]; p.own.size() > 0)
        exchange_.emit(OpKind::frozen_lamb,
                       {part(direction_, p.own), one(average_, i), one(factor_, i)}, p.step.writes);
    for (const Instruction& gather : gathers_) program_.instructions.push_back(gather);
  }

 private:
  bool sharded() const { return updated_.size() < unit_.elements; }

  void add_parameters(const LambEnd& end) {
    for (size_t i = 0; i < unit_.parameters.size(); ++i) {
      const Range range = elements_of(parameter(i));
      const bool last = i + 1 == unit_.parameters.size();
      parameters_.push_back({.range = range,
                             .end = last ? unit_.elements : parameter(i + 1).offset,
                             .own = common(updated_, range),
                             .direction = {},
                             .step = {}});
      Scaled& p = parameters_.back();
      if (p.own.size() <= 0) continue;
      p.direction = direction_of(end.directions, p.own);
      const auto step = std::ranges::find(end.steps, static_cast<int64_t>(i), [](const auto& op) {
        return attrs_as<LambAttrs>(op.attrs).parameter;
      });
      check(step != end.steps.end(), "{} has a parameter without a step", unit_.name);
      p.step = *step;
    }
  }

  const Parameter& parameter(size_t i) const {
    return program_.parameters[static_cast<size_t>(unit_.parameters[i])];
  }

  // As for the gradient's norm squares are added slice by slice, whoever has them, so that all stages give the same
  // bits.
  void direction(size_t i) {
    const Scaled& p = parameters_[i];
    const auto attrs = attrs_as<FrozenLambAttrs>(rule_.frozen_attrs(p.direction.attrs));
    exchange_
        .emit(OpKind::frozen_lamb_direction,
              {part(second_, p.own), p.step.writes[0], one(scale_, i), one(factor_, i)},
              {part(came_, p.own), part(momentum_, p.own), part(fresh_, p.own),
               part(direction_, p.own), one(own_largest_, i)})
        .attrs = attrs;
    if (attrs.weight_decay == 0) return;
    for (int r = 0; r < place_.ranks(); ++r) {
      const Range range = common(p.own, owned_slice(unit_, place_.moved(kStateAxes, r)));
      if (range.size() <= 0) continue;
      const size_t at = 2 * (static_cast<size_t>(r) * parameters_.size() + i);
      exchange_.emit(OpKind::sum_squares, {part(came_, range)}, {one(squares_, at)});
      exchange_.emit(OpKind::sum_squares, {part(direction_, range)}, {one(squares_, at + 1)});
    }
  }

  // Returns the direction of the run of parameters that the elements are in.
  Instruction direction_of(const std::vector<Instruction>& directions, Range elements) const {
    for (const Instruction& op : directions) {
      const Buffer& moment = program_.at(op.writes[0]);
      const int64_t begin = updated_.begin + (moment.parent == kNone ? 0 : moment.parent_offset);
      if (begin <= elements.begin && elements.end <= begin + moment.shape.elements()) return op;
    }
    throw InternalError("a parameter has no direction");
  }

  // Returns a buffer that is held as another one of the unit.
  static UnitBuffer held_as(const UnitBuffer& other, BufferId id) {
    UnitBuffer buffer = other;
    buffer.id = id;
    return buffer;
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
  // Returns elements of the unit in a buffer of all of it, or of the rank's slice.
  BufferId part(const UnitBuffer& buffer, Range range) {
    const int64_t at = position_of(buffer, unit_, place_, range.begin);
    return program_.view(buffer.id, at, range.size());
  }
  // Returns this rank's of equal rows.
  BufferId row_of(BufferId buffer, int64_t rows) {
    const int64_t row = program_.at(buffer).shape.elements() / rows;
    return program_.view(buffer, rows > 1 ? place_.rank() * row : 0, row);
  }
  BufferId one(BufferId whole, size_t i) {
    return program_.view(whole, static_cast<int64_t>(i), 1);
  }

  // By parameters, so that the padding of the unit does not matter to other numbers of ranks.
  void keep_state() {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const std::string& name = parameter(i).name;
      const Range range = parameters_[i].range, own = parameters_[i].own;
      const bool here = own.size() > 0;
      program_.codec_state.push_back({.name = name,
                                      .slot = "exp_avg_sq_fresh",
                                      .values = here ? part(fresh_, own) : kNone,
                                      .sharded = sharded(),
                                      .begin = here ? own.begin - range.begin : 0,
                                      .elements = range.size()});
      for (const auto& [slot, values] :
           {std::pair{"lamb_average", average_}, std::pair{"lamb_factor", factor_},
            std::pair{"momentum_scale", scale_}})
        program_.codec_state.push_back({.name = name, .slot = slot, .values = one(values, i)});
    }
  }

  Program& program_;
  const Job& job_;
  const OptimizerRule& rule_;
  const Place place_;
  const Unit& unit_;
  const bool gathers_momentum_;
  const std::vector<Instruction> gathers_;
  SignExchange exchange_;
  const int64_t count_;  // of parameters
  Range updated_;        // by this rank
  std::vector<Scaled> parameters_;
  std::optional<FrozenSlices> slices_;  // where the second moment is sharded
  UnitBuffer gradient_, momentum_, second_, direction_, fresh_;
  UnitBuffer sent_, came_;  // what is exchanged, and what came of `updated_`
  BufferId average_ = kNone, factor_ = kNone, scale_ = kNone;  // of each parameter
  BufferId largest_ = kNone, squares_ = kNone;                 // of all rows
  BufferId own_largest_ = kNone, own_squares_ = kNone;         // of those that this rank writes
};

// Returns what ends the step of each unit, of the instructions behind finish_gradients.
std::vector<LambEnd> ends_of_units(const Program& program, const OptimizerRule& rule,
                                   const std::vector<Instruction>& instructions) {
  std::unordered_map<BufferId, size_t> of_directions, of_parameters;  // units
  std::vector<LambEnd> ends(program.trained_units().size());
  for (size_t u = 0; u < ends.size(); ++u) {
    of_directions[program.units[u].buffers.direction.id] = u;
    of_parameters[program.units[u].buffers.values.id] = u;
  }
  const auto add = [&](const std::unordered_map<BufferId, size_t>& unit_of, BufferId buffer,
                       std::vector<Instruction> LambEnd::*list, const Instruction& op) {
    if (const auto found = unit_of.find(program.root(buffer)); found != unit_of.end())
      (ends[found->second].*list).push_back(op);
  };
  for (const Instruction& op : instructions) {
    if (op.op == rule.op) add(of_directions, op.writes.back(), &LambEnd::directions, op);
    if (op.op == rule.scaled_op) add(of_directions, op.reads[0], &LambEnd::steps, op);
    if (op.op == OpKind::all_gather) add(of_parameters, op.writes[0], &LambEnd::gathers, op);
  }
  return ends;
}

}  // namespace

void send_lamb_momenta(Program& program, const Job& job, Place place, StepKind kind) {
  const OptimizerRule& rule = optimizer_rule(job.optimizer.kind);
  const auto norm =
      std::ranges::find(program.instructions, OpKind::finish_gradients, &Instruction::op);
  const std::vector<Instruction> old(norm + 1, program.instructions.end());
  program.instructions.erase(norm + 1, program.instructions.end());
  const std::vector<LambEnd> ends = ends_of_units(program, rule, old);
  std::vector<LambUpdate> units;
  units.reserve(ends.size());
  for (size_t u = 0; u < ends.size(); ++u)
    if (!ends[u].directions.empty()) units.emplace_back(program, job, place, u, kind, ends[u]);
  exchange_units(units, job.overlap_comm);
  std::vector<Instruction> begin;
  for (LambUpdate& unit : units) unit.append_gathers(begin);
  program.instructions.insert(program.instructions.begin(), begin.begin(), begin.end());
}

}  // namespace dstrain
