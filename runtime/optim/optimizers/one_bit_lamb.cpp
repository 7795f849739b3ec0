#include "runtime/optim/optimizers/one_bit_lamb.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/optim/signs/frozen_slices.h"

namespace dstrain::optimizers {
namespace {

// A parameter of a unit: where it is, and where the padding behind it ends; the elements that this rank updates, which
// may be none.
struct Scaled {
  Range range, padded, own;
  GroupSettings settings;
};

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
      parameters_.push_back({p.range,
                             {p.range.begin, update.unit().elements},
                             common(update.updated(), p.range),
                             p.settings});
    }
    const int64_t count = this->count();
    average_ = add_averages(update);
    add_direction(update);
    fresh_ = update.held_as_state(persistent("exp_avg_sq_fresh", update.updated().size()));
    factor_ = persistent("lamb_factor", count);
    scale_ = persistent("momentum_scale", count);
    if (sharded_) {
      sent_ = {.id = persistent("scaled_momentum", update.unit().elements)};
      came_ = update.held_as_state(of_step("own_momentum", update.updated().size()));
      slices_.emplace(update, sent_.id);
      if (gathers_momentum_) slices_->emit_gathers();
    } else {
      sent_ = came_ = {.id = of_step("scaled_momentum", update.unit().elements)};
    }
    const int64_t rows = sharded_ ? ranks() : 1;
    largest_ = of_step("lamb_largest", rows * count);
    squares_ = of_step("lamb_squares", ranks() * 2 * count, DType::f64);
    own_largest_ = row_of(largest_, rows);
    own_squares_ = sharded_ ? row_of(squares_, rows) : squares_;
    keep_state();
  }

  void send() override {
    // Later steps of sharded state have what came back: the momentum, times its scale.
    const bool of_scaled = sharded_ && !gathers_momentum_;
    const UnitBuffer& had = sharded_ ? sent_ : momentum_;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto& [range, padded, own, settings] = parameters_[i];
      if (!of_scaled)
        update_.emit(OpKind::momentum_scale, {}, {update_.part(had, range), one(factor_, i)},
                     {one(scale_, i)});
      const BufferId second = slices_ ? view(slices_->bits(), padded.begin / 8, padded.size() / 8)
                                      : update_.part(second_, padded);
      const BufferId sent = update_.part(sent_, padded);
      update_.emit(OpKind::scaled_momentum,
                   LocalMomentumAttrs{.ranks = ranks(), .of_scaled = of_scaled},
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
        update_.emit(OpKind::frozen_lamb, {},
                     {update_.direction(own), one(average_, i), one(factor_, i)},
                     {update_.master(own), update_.copy(own)});
  }

 private:
  int64_t ranks() const { return update_.ranks(); }
  int64_t count() const { return static_cast<int64_t>(parameters_.size()); }

  // As for the gradient's norm squares are added slice by slice, whoever has them, so that all stages give the same
  // bits.
  void direction(size_t i) {
    const auto& [range, padded, own, settings] = parameters_[i];
    update_.emit(OpKind::frozen_lamb_direction,
                 FrozenLambAttrs{.eps = static_cast<float>(update_.config().eps),
                                 .weight_decay = settings.weight_decay},
                 {update_.part(second_, own), update_.master(own), one(scale_, i), one(factor_, i)},
                 {update_.part(came_, own), update_.part(momentum_, own), update_.part(fresh_, own),
                  update_.direction(own), one(own_largest_, i)});
    if (settings.weight_decay == 0) return;
    for (int r = 0; r < update_.ranks(); ++r) {
      const Range part = common(own, update_.slice_of(r));
      if (part.size() <= 0) continue;
      const size_t at = 2 * (static_cast<size_t>(r) * parameters_.size() + i);
      update_.emit(OpKind::sum_squares, {}, {update_.part(came_, part)}, {one(squares_, at)});
      update_.emit(OpKind::sum_squares, {}, {update_.direction(part)}, {one(squares_, at + 1)});
    }
  }

  BufferId persistent(const std::string& what, int64_t elements) {
    return update_.add_buffer(what, elements, Lifetime::persistent);
  }
  BufferId of_step(const std::string& what, int64_t elements, DType dtype = DType::f32) {
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

  // By parameters, so that the padding of the unit does not matter to other numbers of ranks.
  void keep_state() {
    Program& program = update_.program();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      const auto index = static_cast<size_t>(update_.unit().parameters[i]);
      const std::string& name = program.parameters[index].name;
      const Range range = parameters_[i].range, own = parameters_[i].own;
      const bool here = own.size() > 0;
      program.codec_state.push_back({.name = name,
                                     .slot = "exp_avg_sq_fresh",
                                     .values = here ? update_.part(fresh_, own) : kNone,
                                     .sharded = sharded_,
                                     .begin = here ? own.begin - range.begin : 0,
                                     .elements = range.size()});
      for (const auto& [slot, values] :
           {std::pair{"lamb_average", average_}, std::pair{"lamb_factor", factor_},
            std::pair{"momentum_scale", scale_}})
        program.codec_state.push_back({.name = name, .slot = slot, .values = one(values, i)});
    }
  }

  const bool gathers_momentum_, sharded_;
  std::vector<Scaled> parameters_;
  std::optional<FrozenSlices> slices_;  // where the second moment is sharded
  const UnitBuffer momentum_, second_;
  UnitBuffer fresh_;
  UnitBuffer sent_,
      came_;  // what is exchanged, and what came of the elements that this rank updates
  BufferId average_ = kNone, factor_ = kNone, scale_ = kNone;  // of each parameter
  BufferId largest_ = kNone, squares_ = kNone;                 // of all rows
  BufferId own_largest_ = kNone, own_squares_ = kNone;         // of those that this rank writes
};

}  // namespace

BufferId add_averages(UnitUpdate& update) {
  const auto count = static_cast<int64_t>(update.parameters().size());
  return update.buffers().averages = update.add_buffer("lamb_average", count, Lifetime::persistent);
}

std::unique_ptr<SignUpdate> send_scaled_momentum(UnitUpdate& update, StepKind kind) {
  return std::make_unique<ScaledMomentumSigns>(update, kind);
}

}  // namespace dstrain::optimizers
