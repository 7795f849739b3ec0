#include "runtime/optim/optimizers/one_bit.h"

#include <utility>

namespace dstrain {
namespace {

// Returns whether gradients travel whole in update `step`, counted from 1.
bool updates_variance(int64_t scaler, int64_t step) {
  int64_t interval = 1;
  while (step > scaler * interval) {
    step -= scaler * interval;
    interval *= 2;
  }
  return step % interval == 0;
}

// Returns whether local step `step`, counted from 1, synchronises.
bool synchronises(const ZeroOneConfig& config, int64_t step) {
  constexpr int64_t kMostDoublings = 62;
  const int64_t doublings = (step - 1) / config.local_step_scaler;
  const int64_t interval = int64_t{1} << std::min(doublings, kMostDoublings);
  return step % std::min(interval, config.local_step_clipper) == 0;
}

}  // namespace

std::vector<StepKind> zero_one_kinds(const OptimizerConfig& config) {
  const ZeroOneConfig& c = config.zero_one;
  std::vector<StepKind> kinds{StepKind::regular, StepKind::whole_gradients};
  if (c.var_freeze_step > c.var_update_scaler) kinds.push_back(StepKind::gradient_signs);
  if (c.local_step_clipper > 1) kinds.push_back(StepKind::local);
  return kinds;
}

StepKind zero_one_step(const ZeroOneConfig& config, int64_t applied_steps) {
  const int64_t local = applied_steps + 1 - config.var_freeze_step;
  if (local > 0) return synchronises(config, local) ? StepKind::regular : StepKind::local;
  return updates_variance(config.var_update_scaler, applied_steps + 1) ? StepKind::whole_gradients
                                                                       : StepKind::gradient_signs;
}

std::string zero_one_text(const OptimizerConfig& config, StepKind kind) {
  const ZeroOneConfig& c = config.zero_one;
  const bool grows = c.var_freeze_step > c.var_update_scaler, waits = c.local_step_clipper > 1;
  switch (kind) {
    case StepKind::whole_gradients:
      return grows ? fmt::format("steps 1 to {}, and up to {} each 2nd, 4th, ...",
                                 c.var_update_scaler, c.var_freeze_step)
                   : fmt::format("steps 1 to {}", c.var_freeze_step);
    case StepKind::gradient_signs:
      return fmt::format("the other steps up to {}", c.var_freeze_step);
    case StepKind::local:
      return fmt::format("the other steps from {} on", c.var_freeze_step + 1);
    case StepKind::regular:
    case StepKind::whole_momentum:  // not of this optimizer
      break;
  }
  return waits ? fmt::format("from step {} on, at intervals of 1 to {}", c.var_freeze_step + 1,
                             c.local_step_clipper)
               : fmt::format("from step {} on", c.var_freeze_step + 1);
}

int64_t open_local_steps(const ZeroOneConfig& config, int64_t applied_steps) {
  int64_t count = 0;
  while (count < applied_steps &&
         zero_one_step(config, applied_steps - 1 - count) == StepKind::local)
    ++count;
  return count;
}

namespace optimizers {
namespace {

// What 1-bit Lamb keeps beside its moments: what the second moment would be; the averages of trust ratios; the factors;
// the scales of momenta.
constexpr SlotRule kLambKept[] = {
    {.name = "exp_avg_sq_fresh"},
    {.name = "lamb_average", .block = SlotRule::kWholeParameter},
    {.name = "lamb_factor", .block = SlotRule::kWholeParameter},
    {.name = "momentum_scale", .block = SlotRule::kWholeParameter},
};
constexpr const SlotRule& kAverages = kLambKept[1];

// What 0/1 Adam keeps beside its moments: each rank's momentum between synchronisations, and what it has moved since the
// last one.
constexpr SlotRule kLocalKept[] = {
    {.name = "local_momentum", .values_of = "exp_avg", .per_rank = true},
    {.name = "local_sum", .per_rank = true},
};

FrozenStepAttrs frozen_step_attrs(const UnitUpdate& update, const UpdateRun& run) {
  return {.eps = static_cast<float>(update.config().eps),
          .weight_decay = run.settings.weight_decay};
}

// Appends AdamW's step by a momentum that is known, with a frozen second moment.
void emit_frozen_adam(UnitUpdate& update) {
  for (const UpdateRun& run : update.runs())
    update.emit(OpKind::frozen_adam, frozen_step_attrs(update, run),
                {update.slot(0, run.range), update.slot(1, run.range)},
                {update.master(run.range), update.copy(run.range)});
}

// Adds where the sharded second moment of the whole unit is above 0: u8, a bit for each element. `gathers`: at the
// beginning of the step ranks gather that and the momentum, to `whole`, of which each of them has its slice when steps
// with whole gradients end, and when a run is resumed. Returns the bits.
BufferId add_second_moment_bits(UnitUpdate& update, BufferId whole, bool gathers) {
  Program& program = update.program();
  const BufferId momentum = update.buffers().slots[0].values.id,
                 second = update.buffers().slots[1].values.id;
  const BufferId bits = program.add_buffer({.name = program.at(second).name + ":bits",
                                            .shape = {update.unit().elements / 8},
                                            .dtype = DType::u8,
                                            .memory = MemoryClass::optimizer,
                                            .lifetime = Lifetime::persistent});
  if (!gathers) return bits;
  const Range slice = update.updated();
  const BufferId own_bits = program.view(bits, slice.begin / 8, slice.size() / 8);
  update.emit_first(OpKind::positive_bits, {}, {second}, {own_bits});
  update.emit_first(OpKind::all_gather, {}, {own_bits}, {bits});
  BufferId own = momentum;
  if (program.root(momentum) != program.root(whole)) {
    own = program.view(whole, slice.begin, slice.size());
    update.emit_first(OpKind::accumulate, {}, {momentum}, {own});
  }
  update.emit_first(OpKind::all_gather, {}, {own}, {whole});
  return bits;
}

// 1-bit Adam: each rank's share of the momentum, made of its own gradient, travels as signs; the shares add up to the
// momentum. With sharded masters and second moments a rank updates its slice of the weights by its slice of the momentum.
class MomentumSigns final : public SignUpdate {
 public:
  MomentumSigns(UnitUpdate& update, StepKind kind)
      : SignUpdate(update, true),
        momentum_(update.buffers().slots[0].gathered),
        second_(update.buffers().slots[1].values.id) {
    if (momentum_ == kNone)
      momentum_ = update.buffers().slots[0].values.id;
    else
      second_ = add_second_moment_bits(update, momentum_, kind == StepKind::whole_momentum);
  }

  void send() override {
    update_.emit(OpKind::local_momentum, LocalMomentumAttrs{.share = share()},
                 {update_.buffers().gradients.id, second_}, {momentum_});
    exchange_->send(momentum_, {});
  }

  void finish() override {
    exchange_->receive(momentum_);
    emit_frozen_adam(update_);
  }

 private:
  BufferId momentum_, second_;  // of all elements; the second moment's values or bits
};

// 1-bit Lamb: as 1-bit Adam, but each parameter's momentum has a scale.
class ScaledMomentumSigns final : public SignUpdate {
 public:
  ScaledMomentumSigns(UnitUpdate& update, StepKind kind)
      : SignUpdate(update, true),
        gathers_momentum_(kind == StepKind::whole_momentum),
        sharded_(update.sharded()),
        momentum_(update.buffers().slots[0].values),
        second_(update.buffers().slots[1].values) {
    for (const UpdateRun& p : update.parameters()) {
      if (!parameters_.empty()) parameters_.back().padded.end = p.range.begin;
      parameters_.push_back(
          {p, {p.range.begin, update.unit().elements}, common(update.updated(), p.range)});
    }
    const std::vector<UnitBuffer> kept = update.keep(kLambKept);
    fresh_ = kept[0];
    average_ = kept[1].id;
    factor_ = kept[2].id;
    scale_ = kept[3].id;
    add_direction(update);
    const int64_t elements = update.unit().elements, count = this->count();
    if (sharded_) {
      sent_ = {.id = update.add_buffer("scaled_momentum", elements, Lifetime::persistent)};
      came_ = update.held_as_state(of_step("own_momentum", update.updated().size()));
      bits_ = add_second_moment_bits(update, sent_.id, gathers_momentum_);
    } else {
      sent_ = came_ = {.id = of_step("scaled_momentum", elements)};
    }
    const int64_t rows = sharded_ ? ranks() : 1;
    largest_ = of_step("lamb_largest", rows * count);
    squares_ = of_step("lamb_squares", ranks() * 2 * count, DType::f64);
    own_largest_ = row_of(largest_, rows);
    own_squares_ = sharded_ ? row_of(squares_, rows) : squares_;
  }

  void send() override {
    // Later steps of sharded state have what came back: the momentum, times its scale.
    const bool of_scaled = sharded_ && !gathers_momentum_;
    const UnitBuffer& had = sharded_ ? sent_ : momentum_;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto& [run, padded, own] = parameters_[i];
      if (!of_scaled)
        update_.emit(OpKind::momentum_scale, {}, {update_.part(had, run.range), one(factor_, i)},
                     {one(scale_, i)});
      const BufferId second = sharded_ ? view(bits_, padded.begin / 8, padded.size() / 8)
                                       : update_.part(second_, padded);
      const BufferId sent = update_.part(sent_, padded);
      update_.emit(OpKind::local_momentum,
                   LocalMomentumAttrs{.share = share(), .of_scaled = of_scaled},
                   {update_.gradients(padded), second, sharded_ ? sent : update_.part(had, padded),
                    one(scale_, i)},
                   {sent});
    }
    exchange_->send(sent_.id, {});
  }

  void finish() override {
    exchange_->receive(sent_.id);
    // What came stays as it is for the next step.
    if (sharded_)
      update_.emit(OpKind::accumulate, {}, {update_.part(sent_, update_.updated())}, {came_.id});
    update_.emit(OpKind::zero, {}, {}, {own_largest_});
    update_.emit(OpKind::zero, {}, {}, {own_squares_});
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (parameters_[i].own.size() > 0) direction(i);
    if (sharded_) {
      update_.emit_gather(RankSet::slices, own_largest_, largest_);
      update_.emit_gather(RankSet::slices, own_squares_, squares_);
    }
    const OneBitLambConfig& config = update_.config().one_bit_lamb;
    update_.emit(OpKind::lamb_factor,
                 LambFactorAttrs{.smallest = static_cast<float>(config.factor_min),
                                 .largest = static_cast<float>(config.factor_max),
                                 .threshold = static_cast<float>(config.factor_threshold)},
                 {largest_, squares_}, {factor_});
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (const Range own = parameters_[i].own; own.size() > 0)
        update_.emit(OpKind::lamb, LambAttrs{},
                     {update_.direction(own), one(average_, i), one(factor_, i)},
                     {update_.master(own), update_.copy(own)});
  }

 private:
  // A parameter of the unit: where it is, and where the padding behind it ends; the elements that this rank updates,
  // which may be none.
  struct Scaled {
    UpdateRun run;
    Range padded, own;
  };

  int64_t count() const { return static_cast<int64_t>(parameters_.size()); }

  // As for the gradient's norm squares are added slice by slice, whoever has them, so that all stages give the same
  // bits.
  void direction(size_t i) {
    const auto& [run, padded, own] = parameters_[i];
    update_.emit(OpKind::frozen_lamb_direction, frozen_step_attrs(update_, run),
                 {update_.part(second_, own), update_.master(own), one(scale_, i), one(factor_, i)},
                 {update_.part(came_, own), update_.part(momentum_, own), update_.part(fresh_, own),
                  update_.direction(own), one(own_largest_, i)});
    if (run.settings.weight_decay == 0) return;
    for (int r = 0; r < update_.ranks(); ++r) {
      const Range part = common(own, update_.slice_of(r));
      if (part.size() <= 0) continue;
      const size_t at = 2 * (static_cast<size_t>(r) * parameters_.size() + i);
      update_.emit(OpKind::sum_squares, {}, {update_.part(came_, part)}, {one(squares_, at)});
      update_.emit(OpKind::sum_squares, {}, {update_.direction(part)}, {one(squares_, at + 1)});
    }
  }

  BufferId of_step(std::string_view what, int64_t elements, DType dtype = DType::f32) {
    return update_.add_buffer(what, elements, Lifetime::step, dtype);
  }
  BufferId view(BufferId whole, int64_t begin, int64_t elements) {
    return update_.program().view(whole, begin, elements);
  }
  // Returns this rank's of equal rows.
  BufferId row_of(BufferId buffer, int64_t rows) {
    const int64_t row = update_.program().at(buffer).shape.elements() / rows;
    return view(buffer, rows > 1 ? update_.rank() * row : 0, row);
  }
  BufferId one(BufferId whole, size_t i) { return view(whole, static_cast<int64_t>(i), 1); }

  const bool gathers_momentum_, sharded_;
  std::vector<Scaled> parameters_;
  const UnitBuffer momentum_, second_;
  UnitBuffer fresh_;
  UnitBuffer sent_,
      came_;  // what is exchanged, and what came of the elements that this rank updates
  BufferId bits_ = kNone;  // of the second moment, where it is sharded
  BufferId average_ = kNone, factor_ = kNone, scale_ = kNone;  // of each parameter
  BufferId largest_ = kNone, squares_ = kNone;                 // of all rows
  BufferId own_largest_ = kNone, own_squares_ = kNone;         // of those that this rank writes
};

// 0/1 Adam, before the second moment is frozen: each rank's own gradient travels as signs.
class GradientSigns final : public SignUpdate {
 public:
  explicit GradientSigns(UnitUpdate& update)
      : SignUpdate(update, true), sum_(update.buffers().gradients.id) {}

  void send() override { exchange_->send(sum_, {.gradient = true}); }

  void finish() override {
    const bool alone = ranks() == 1;
    if (!alone)
      sum_ = update_.program().add_buffer({.name = "summed_grads:" + update_.unit().name,
                                           .shape = {update_.unit().elements},
                                           .memory = MemoryClass::gradients});
    exchange_->receive(sum_);
    const auto& slots = update_.buffers().slots;
    update_.emit(OpKind::local_momentum, LocalMomentumAttrs{.scaled = alone},
                 {sum_, slots[1].values.id}, {slots[0].values.id});
    emit_frozen_adam(update_);
  }

 private:
  BufferId sum_;  // of the gradients
};

// 0/1 Adam, after that: what the rank has moved since ranks have synchronised the last time travels as signs, in some
// steps. In the others nothing travels. Weights that the forward pass reads are then the rank's own, made at the
// beginning of a step of the weights that are synchronised and of what the rank has moved since.
class LocalSteps final : public SignUpdate {
 public:
  LocalSteps(UnitUpdate& update, bool synchronises)
      : SignUpdate(update, synchronises), sum_(update.keep(kLocalKept)[1]) {
    for (const UpdateRun& run : update.runs())
      update.emit_first(
          OpKind::local_weights, frozen_step_attrs(update, run),
          {update.master(run.range), update.slot(1, run.range), update.part(sum_, run.range)},
          {update.copy(run.range)});
  }

  void send() override {
    const UnitBuffers& buffers = update_.buffers();
    update_.emit(OpKind::local_momentum, LocalMomentumAttrs{.weight = static_cast<float>(ranks())},
                 {buffers.gradients.id, buffers.slots[1].values.id},
                 {buffers.slots[0].values.id, sum_.id});
    if (exchange_) exchange_->send(sum_.id, {.ranks = ranks()});
  }

  void finish() override {
    if (!exchange_) return;
    exchange_->receive(sum_.id);
    for (const UpdateRun& run : update_.runs())
      update_.emit(OpKind::end_local_steps, frozen_step_attrs(update_, run),
                   {update_.slot(1, run.range)},
                   {update_.master(run.range), update_.slot(0, run.range),
                    update_.part(sum_, run.range), update_.copy(run.range)});
  }

 private:
  const UnitBuffer sum_;  // of what local steps have moved
};

}  // namespace

void emit_adam(UnitUpdate& update) {
  for (const UpdateRun& run : update.runs())
    update.emit_update(OpKind::adam,
                       AdamAttrs{.eps = static_cast<float>(update.config().eps),
                                 .weight_decay = run.settings.weight_decay},
                       run.range, 2);
}

void emit_averaged_steps(UnitUpdate& update) {
  const BufferId sums = emit_square_sums(update);
  const OptimizerConfig& o = update.config();
  update.emit(OpKind::lamb_average,
              LambAverageAttrs{.min_coeff = static_cast<float>(o.min_coeff),
                               .max_coeff = static_cast<float>(o.max_coeff),
                               .beta = static_cast<float>(o.one_bit_lamb.coeff_beta)},
              {sums}, {update.add_kept(kAverages).id});
  emit_steps(update, sums);
}

std::unique_ptr<SignUpdate> send_momentum(UnitUpdate& update, StepKind kind) {
  return std::make_unique<MomentumSigns>(update, kind);
}

std::unique_ptr<SignUpdate> send_scaled_momentum(UnitUpdate& update, StepKind kind) {
  return std::make_unique<ScaledMomentumSigns>(update, kind);
}

std::unique_ptr<SignUpdate> send_local_steps(UnitUpdate& update, StepKind kind) {
  if (kind == StepKind::gradient_signs) return std::make_unique<GradientSigns>(update);
  return std::make_unique<LocalSteps>(update, kind == StepKind::regular);
}

}  // namespace optimizers
}  // namespace dstrain
