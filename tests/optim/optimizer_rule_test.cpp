#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "tests/optim/lone_unit.h"

namespace dstrain {
namespace {

using Names = std::vector<std::string_view>;

OptimizerConfig of(OptimizerKind kind) {
  OptimizerConfig config;
  config.kind = kind;
  return config;
}

// Returns the names of the slots that an optimizer keeps for parameters that are updated in a form.
Names slots(const OptimizerConfig& config, UpdateForm form = UpdateForm::elements) {
  Names names;
  for (const SlotRule& slot : state_slots(config))
    if (slot.forms.has(form)) names.push_back(slot.name);
  return names;
}

TEST_CASE("the state that an optimizer keeps") {
  CHECK(slots(of(OptimizerKind::adam)) == Names{"exp_avg", "exp_avg_sq"});
  CHECK(slots(of(OptimizerKind::adagrad)) == Names{"sum"});
  CHECK(slots(of(OptimizerKind::lion)) == Names{"exp_avg"});
  CHECK(slots(of(OptimizerKind::lamb)) == Names{"exp_avg", "exp_avg_sq"});
  CHECK(slots(of(OptimizerKind::muon)) == Names{"exp_avg", "exp_avg_sq"});
  CHECK(slots(of(OptimizerKind::muon), UpdateForm::matrix) == Names{"exp_avg"});
  CHECK(slots(of(OptimizerKind::one_bit_adam)) == Names{"exp_avg", "exp_avg_sq"});
  OptimizerConfig sgd = of(OptimizerKind::sgd);
  CHECK(slots(sgd).empty());
  sgd.ema_decay = 0.9;
  CHECK(slots(sgd) == Names{"ema"});
  CHECK(own_slots(sgd).empty());
  sgd.ema_decay = 0;
  sgd.momentum = 0.9;
  CHECK(slots(sgd) == Names{"momentum"});
  CHECK(slots(of(OptimizerKind::adam_8bit)) == Names{"exp_avg", "exp_avg_sq"});
  CHECK(slots(of(OptimizerKind::adam_8bit), UpdateForm::blocks) ==
        Names{"exp_avg_codes", "exp_avg_absmax", "exp_avg_sq_codes", "exp_avg_sq_absmax"});
  CHECK(slots(of(OptimizerKind::lion_8bit)) == Names{"exp_avg"});
  CHECK(slots(of(OptimizerKind::lion_8bit), UpdateForm::blocks) ==
        Names{"exp_avg_codes", "exp_avg_absmax"});
  CHECK(all_state_slots() == Names{"exp_avg", "exp_avg_sq", "momentum", "sum", "exp_avg_codes",
                                   "exp_avg_absmax", "exp_avg_sq_codes", "exp_avg_sq_absmax",
                                   "ema"});
}

TEST_CASE("the bytes of state of an element follow from the slots") {
  const auto bytes = [](OptimizerKind kind, UpdateForm form, DType dtype = DType::f32) {
    Job job;
    job.optimizer.kind = kind;
    job.state_dtype = dtype;
    return slot_bytes(job, form);
  };
  CHECK(bytes(OptimizerKind::adam, UpdateForm::elements) == 8);
  CHECK(bytes(OptimizerKind::adam, UpdateForm::elements, DType::bf16) == 4);
  CHECK(bytes(OptimizerKind::lion, UpdateForm::elements) == 4);
  CHECK(bytes(OptimizerKind::sgd, UpdateForm::elements) == 0);
  CHECK(bytes(OptimizerKind::muon, UpdateForm::elements) == 8);
  CHECK(bytes(OptimizerKind::muon, UpdateForm::matrix) == 4);
  CHECK(bytes(OptimizerKind::adam_8bit, UpdateForm::elements) == 8);
  CHECK(bytes(OptimizerKind::adam_8bit, UpdateForm::blocks) == 2 + 8.0 / 256);
  CHECK(bytes(OptimizerKind::lion_8bit, UpdateForm::blocks) == 1 + 4.0 / 256);
  CHECK(state_block(of(OptimizerKind::adam)) == 1);
  CHECK(state_block(of(OptimizerKind::adam_8bit)) == 256);
}

// Returns the ops of a program, in order.
std::vector<OpKind> ops(const Program& program) {
  std::vector<OpKind> list;
  for (const Instruction& op : program.instructions) list.push_back(op.op);
  return list;
}

Job job_of(OptimizerKind kind) {
  Job job;
  job.optimizer = of(kind);
  return job;
}

using Ops = std::vector<OpKind>;

TEST_CASE("what optimizers emit for a unit") {
  const auto of_kind = [](OptimizerKind kind) { return ops(update_of(job_of(kind))); };
  CHECK(of_kind(OptimizerKind::adam) == Ops{OpKind::adam});
  CHECK(of_kind(OptimizerKind::sgd) == Ops{OpKind::sgd});
  CHECK(of_kind(OptimizerKind::adagrad) == Ops{OpKind::adagrad});
  CHECK(of_kind(OptimizerKind::lion) == Ops{OpKind::lion});
  CHECK(of_kind(OptimizerKind::one_bit_adam) == Ops{OpKind::adam});
  CHECK(of_kind(OptimizerKind::zero_one_adam) == Ops{OpKind::adam});
  CHECK(of_kind(OptimizerKind::muon) ==
        Ops{OpKind::muon_momentum, OpKind::adam, OpKind::orthogonalize, OpKind::muon});
  constexpr OpKind sum = OpKind::sum_squares;
  CHECK(of_kind(OptimizerKind::lamb) ==
        Ops{OpKind::lamb_direction, OpKind::zero, sum, sum, sum, sum, OpKind::lamb, OpKind::lamb});
  CHECK(of_kind(OptimizerKind::one_bit_lamb) == Ops{OpKind::lamb_direction, OpKind::zero, sum, sum,
                                                    sum, sum, OpKind::lamb_average, OpKind::lamb,
                                                    OpKind::lamb});
}

TEST_CASE("an update reads the gradients, and writes weights, state and the copy of the weights") {
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::sgd, OptimizerKind::adagrad,
                                   OptimizerKind::lion, OptimizerKind::one_bit_adam}) {
    const Program program = update_of(job_of(kind));
    const UnitBuffers& buffers = program.units[0].buffers;
    const Instruction& op = program.instructions[0];
    CHECK(op.when == When::step_end);
    CHECK(op.reads == std::vector<BufferId>{buffers.gradients.id});
    std::vector<BufferId> writes{buffers.values.id};
    for (const UnitBuffers::Slot& slot : buffers.slots) writes.push_back(slot.values.id);
    if (kind == OptimizerKind::sgd) writes.push_back(kNone);  // without momentum
    writes.push_back(kNone);                                  // the weights are the masters
    CHECK(op.writes == writes);
  }
}

TEST_CASE("Lamb steps along each parameter's direction, by its limits of the trust ratio") {
  const Program program = update_of(job_of(OptimizerKind::lamb));
  const UnitBuffers& buffers = program.units[0].buffers;
  const Instruction& step = program.instructions.back();
  CHECK(std::get<LambAttrs>(step.attrs) ==
        LambAttrs{.min_coeff = 0.01f, .max_coeff = 10, .parameter = 1, .parameters = 2});
  CHECK(program.root(step.reads[0]) == buffers.direction.id);
  CHECK(step.reads[1] == program.find("trust:blocks.0"));
  CHECK(program.root(step.writes[0]) == buffers.values.id);
  CHECK(program.at(step.writes[0]).shape == Shape{4});  // without the padding
}

TEST_CASE("Lamb's ranks add the squares of the slices that they own, and gather the sums") {
  const Job job = job_of(OptimizerKind::lamb);
  Program program = lone_program(job.optimizer);
  LoneUpdate update(program, job, {0, 16}, 4);
  const OptimizerRule& rule = optimizer_rule(OptimizerKind::lamb);
  rule.begin(update);
  rule.finish(update);
  int64_t summed = 0;
  for (const Instruction& op : program.instructions)
    if (op.op == OpKind::sum_squares) summed += program.at(op.reads[0]).shape.elements();
  CHECK(summed == 2 * 4);
  CHECK(std::ranges::count(program.instructions, OpKind::all_gather, &Instruction::op) == 1);
  CHECK(program.at(program.find("trust:blocks.0")).shape == Shape{4 * 2 * 2});
}

// Returns what a 1-bit optimizer emits for the unit in steps of a kind in which ranks keep their gradients.
Program signs_of(const Job& job, StepKind kind, int ranks = 1) {
  Program program = lone_program(job.optimizer);
  LoneUpdate update(program, job, {0, 16}, ranks);
  const auto signs = optimizer_rule(job.optimizer.kind).signs->update(update, kind);
  signs->send();
  signs->forward();
  signs->finish();
  program.instructions.insert(program.instructions.begin(), update.first().begin(),
                              update.first().end());
  return program;
}

// Returns the attributes of the first op of a kind.
template <class Attrs>
Attrs attrs_of(const Program& program, OpKind op) {
  const auto found = std::ranges::find(program.instructions, op, &Instruction::op);
  REQUIRE(found != program.instructions.end());
  return std::get<Attrs>(found->attrs);
}

TEST_CASE("the optimizers whose ranks keep their gradients in some steps") {
  for (size_t i = 0; i < kOptimizerKinds; ++i) {
    const auto kind = static_cast<OptimizerKind>(i);
    const OptimizerRule& rule = optimizer_rule(kind);
    CHECK((rule.signs != nullptr) == is_one_bit(kind));
    CHECK(freezes(of(kind)) == is_one_bit(kind));
    if (is_one_bit(kind)) CHECK_FALSE(rule.corrects_bias);
  }
}

TEST_CASE("what 1-bit optimizers emit on one rank, which sends nothing") {
  CHECK(ops(signs_of(job_of(OptimizerKind::one_bit_adam), StepKind::regular)) ==
        Ops{OpKind::local_momentum, OpKind::frozen_adam});
  const Job zero_one = job_of(OptimizerKind::zero_one_adam);
  CHECK(ops(signs_of(zero_one, StepKind::gradient_signs)) ==
        Ops{OpKind::local_momentum, OpKind::frozen_adam});
  CHECK(ops(signs_of(zero_one, StepKind::local)) ==
        Ops{OpKind::local_weights, OpKind::local_momentum});
  CHECK(ops(signs_of(zero_one, StepKind::regular)) ==
        Ops{OpKind::local_weights, OpKind::local_momentum, OpKind::end_local_steps});
  CHECK(ops(signs_of(job_of(OptimizerKind::one_bit_lamb), StepKind::regular)) ==
        Ops{OpKind::momentum_scale, OpKind::local_momentum, OpKind::momentum_scale,
            OpKind::local_momentum, OpKind::zero, OpKind::zero, OpKind::frozen_lamb_direction,
            OpKind::frozen_lamb_direction, OpKind::lamb_factor, OpKind::lamb, OpKind::lamb});
}

TEST_CASE("signs travel twice, but for local steps") {
  const auto sent = [](OptimizerKind kind, StepKind step) {
    const Program program = signs_of(job_of(kind), step, 4);
    const auto count = [&program](OpKind op) {
      return std::ranges::count(program.instructions, op, &Instruction::op);
    };
    CHECK(count(OpKind::all_to_all) == count(OpKind::all_gather));
    CHECK(count(OpKind::quantize_signs) == count(OpKind::all_to_all));
    return count(OpKind::all_to_all);
  };
  CHECK(sent(OptimizerKind::one_bit_adam, StepKind::regular) == 1);
  CHECK(sent(OptimizerKind::one_bit_lamb, StepKind::regular) == 1);
  CHECK(sent(OptimizerKind::zero_one_adam, StepKind::gradient_signs) == 1);
  CHECK(sent(OptimizerKind::zero_one_adam, StepKind::regular) == 1);
  CHECK(sent(OptimizerKind::zero_one_adam, StepKind::local) == 0);
}

TEST_CASE("1-bit Adam goes on with the constants of its first steps") {
  Job job = job_of(OptimizerKind::one_bit_adam);
  job.optimizer.eps = 0.25;
  job.optimizer.weight_decay = 0.5;
  job.optimizer.decoupled_decay = false;  // it has no other decay
  const auto first = attrs_of<AdamAttrs>(update_of(job), OpKind::adam);
  CHECK(first.decoupled_decay);
  CHECK(first.eps == 0.25f);
  CHECK(first.weight_decay == 0.5f);
  CHECK(attrs_of<FrozenStepAttrs>(signs_of(job, StepKind::regular), OpKind::frozen_adam) ==
        FrozenStepAttrs{.eps = 0.25f, .weight_decay = 0.5f});
  job.optimizer.kind = OptimizerKind::zero_one_adam;
  CHECK(attrs_of<FrozenStepAttrs>(signs_of(job, StepKind::regular), OpKind::end_local_steps) ==
        FrozenStepAttrs{.eps = 0.25f, .weight_decay = 0.5f});
}

TEST_CASE("1-bit Lamb averages trust ratios, and goes on with the constants of its first steps") {
  Job job = job_of(OptimizerKind::one_bit_lamb);
  job.optimizer.eps = 0.25;
  job.optimizer.weight_decay = 0.5;
  job.optimizer.max_coeff = 2;
  job.optimizer.min_coeff = 0.5;
  job.optimizer.one_bit_lamb.coeff_beta = 0.75;
  const Program program = update_of(job);
  CHECK(attrs_of<LambAverageAttrs>(program, OpKind::lamb_average) ==
        LambAverageAttrs{.min_coeff = 0.5f, .max_coeff = 2, .beta = 0.75f});
  CHECK(program.instructions[6].writes ==
        std::vector{program.find("lamb_average:" + program.units[0].name)});
  CHECK(
      attrs_of<FrozenStepAttrs>(signs_of(job, StepKind::regular), OpKind::frozen_lamb_direction) ==
      FrozenStepAttrs{.eps = 0.25f, .weight_decay = 0.5f});
}

TEST_CASE("an optimizer's ops have the weight decay and the lr_scale of a group of parameters") {
  for (const OptimizerKind kind : {OptimizerKind::adam, OptimizerKind::sgd, OptimizerKind::adagrad,
                                   OptimizerKind::lion, OptimizerKind::lamb, OptimizerKind::muon}) {
    Job job = job_of(kind);
    job.model.set_fine_tuning(
        {.groups = {{.match = {"*"}, .lr_scale = 0.25, .weight_decay = 0.5}}});
    int decays = 0, scales = 0;
    for (const Instruction& op : update_of(job).instructions)
      std::visit(
          [&]<class Attrs>(const Attrs& attrs) {
            if constexpr (requires { attrs.weight_decay; }) {
              ++decays;
              CHECK(attrs.weight_decay == 0.5f);
            }
            if constexpr (requires { attrs.lr_scale; }) {
              ++scales;
              CHECK(attrs.lr_scale == 0.25f);
            }
          },
          op.attrs);
    CHECK(decays == (kind == OptimizerKind::muon ? 2 : 1));
    CHECK(scales == (kind == OptimizerKind::muon || kind == OptimizerKind::lamb ? 2 : 1));
  }
  CHECK(GroupSettings{} == GroupSettings{.weight_decay = 0, .lr_scale = 1});
}

TEST_CASE("Muon's other parameters decay as Adam's or as AdamW's do") {
  for (const bool decoupled : {true, false}) {
    Job job = job_of(OptimizerKind::muon);
    job.optimizer.decoupled_decay = decoupled;
    CHECK(attrs_of<AdamAttrs>(update_of(job), OpKind::adam).decoupled_decay == decoupled);
  }
}

TEST_CASE("Muon takes hidden matrices, and scales those with more rows than columns") {
  const auto takes = [](std::string_view name, const Shape& shape) {
    return optimizer_rule(OptimizerKind::muon).takes({}, {name, shape});
  };
  CHECK(takes("blocks.0.attn.qkv.weight", Shape{12, 4}));
  CHECK(takes("layers.0.weight", Shape{1, 1}));
  CHECK_FALSE(takes("blocks.0.mlp.fc.bias", Shape{12}));
  CHECK_FALSE(takes("token_embedding_table.weight", Shape{9, 4}));
  CHECK_FALSE(takes("Position_Embedding", Shape{9, 4}));
  CHECK_FALSE(takes("lm_head.weight", Shape{9, 4}));
  for (size_t i = 0; i < kOptimizerKinds; ++i)
    CHECK((optimizer_rule(static_cast<OptimizerKind>(i)).other_form == UpdateForm::matrix) ==
          (static_cast<OptimizerKind>(i) == OptimizerKind::muon));
  const Job job = job_of(OptimizerKind::muon);
  const auto scale = [&job](const Shape& shape) {
    Program program = lone_program(job.optimizer);
    program.parameters[0].shape = shape;
    LoneUpdate update(program, job);
    optimizer_rule(OptimizerKind::muon).begin(update);
    optimizer_rule(OptimizerKind::muon).finish(update);
    return std::get<MuonAttrs>(program.instructions.back().attrs).scale;
  };
  CHECK(scale(Shape{8, 1}) == std::sqrt(8.0f));
  CHECK(scale(Shape{4, 2}) == std::sqrt(2.0f));
  CHECK(scale(Shape{2, 4}) == 1);
}

TEST_CASE("state is in 8 bits from min_8bit_size elements on, but for tables of embeddings") {
  for (const OptimizerKind kind : {OptimizerKind::adam_8bit, OptimizerKind::lion_8bit}) {
    const auto takes = optimizer_rule(kind).takes;
    OptimizerConfig config = of(kind);
    CHECK(takes(config, {"w", Shape{64, 64}}));
    CHECK_FALSE(takes(config, {"w", Shape{64, 63}}));
    CHECK_FALSE(takes(config, {"w", Shape{64, 64}, true}));
    config.min_8bit_size = 0;
    CHECK(takes(config, {"b", Shape{1}}));
  }
  Job job = job_of(OptimizerKind::adam_8bit);
  job.optimizer.weight_decay = 0.5;
  job.optimizer.min_8bit_size = 8;
  const Program program = update_of(job);
  CHECK(ops(program) == Ops{OpKind::adam_8bit, OpKind::adam});
  CHECK(attrs_of<AdamAttrs>(program, OpKind::adam_8bit) ==
        attrs_of<AdamAttrs>(program, OpKind::adam));
  CHECK(program.instructions[0].writes.size() == 6);
  job.optimizer.kind = OptimizerKind::lion_8bit;
  CHECK(ops(update_of(job)) == Ops{OpKind::lion_8bit, OpKind::lion});
}

TEST_CASE("Muon's ranks gather directions, with zeros between the matrices") {
  const Job job = job_of(OptimizerKind::muon);
  Program program = lone_program(job.optimizer);
  LoneUpdate update(program, job, {4, 12}, 2);
  optimizer_rule(OptimizerKind::muon).begin(update);
  CHECK(ops(program) == Ops{OpKind::muon_momentum, OpKind::adam, OpKind::zero, OpKind::all_gather});
  const BufferId zeroed = program.instructions[2].writes[0];
  CHECK(program.at(zeroed).parent_offset == 8);
  CHECK(program.at(zeroed).shape == Shape{4});
  CHECK(program.instructions[3].writes[0] == program.units[0].buffers.direction.id);
}

TEST_CASE("a short run has all kinds of an optimizer's steps, and one that never freezes has one") {
  for (const OptimizerKind kind :
       {OptimizerKind::one_bit_adam, OptimizerKind::zero_one_adam, OptimizerKind::one_bit_lamb}) {
    const SignRule& signs = *optimizer_rule(kind).signs;
    OptimizerConfig config = of(kind);
    const int64_t steps = signs.shorten(config);
    CHECK(steps < 10);
    CHECK(signs.freeze_step(config) < steps);
    if (signs.exact_steps) CHECK(signs.exact_steps(config) <= signs.freeze_step(config));
    signs.never_freeze(config);
    CHECK(signs.freeze_step(config) > INT32_MAX);
  }
}

TEST_CASE("the parameters that a resumed run compares") {
  const auto params = [](OptimizerKind kind) {
    const OptimizerConfig config = of(kind);
    std::map<std::string_view, std::string> values;
    for (const OptimizerParam& p : optimizer_rule(kind).params(config)) values[p.key] = p.value;
    return values;
  };
  CHECK(params(OptimizerKind::adam) ==
        std::map<std::string_view, std::string>{
            {"betas", "[0.9, 0.999]"}, {"bias_correction", "true"}, {"eps", "1e-08"}});
  CHECK(params(OptimizerKind::lion).count("eps") == 0);
  CHECK(params(OptimizerKind::lamb).at("max_coeff") == "10");
  CHECK(params(OptimizerKind::muon).at("ns_method") == "gram");
  CHECK(params(OptimizerKind::muon).at("adam_w_mode") == "true");
  CHECK(params(OptimizerKind::one_bit_adam).at("freeze_step") == "100000");
  CHECK(params(OptimizerKind::one_bit_lamb).at("factor_threshold") == "0.1");
  CHECK(params(OptimizerKind::one_bit_lamb).at("coeff_beta") == "0.9");
  CHECK(params(OptimizerKind::zero_one_adam).at("local_step_scaler") == "32678");
}

}  // namespace
}  // namespace dstrain
