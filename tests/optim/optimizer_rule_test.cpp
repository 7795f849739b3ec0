#include <catch2/catch.hpp>
#include <map>

#include "runtime/optim/optimizer_rules.h"

namespace dstrain {
namespace {

using Names = std::vector<std::string_view>;

OptimizerConfig of(OptimizerKind kind) {
  OptimizerConfig config;
  config.kind = kind;
  return config;
}

TEST_CASE("the state that an optimizer keeps") {
  CHECK(state_slots(of(OptimizerKind::adam)) == Names{"exp_avg", "exp_avg_sq"});
  CHECK(state_slots(of(OptimizerKind::adagrad)) == Names{"sum"});
  CHECK(state_slots(of(OptimizerKind::lion)) == Names{"exp_avg"});
  CHECK(state_slots(of(OptimizerKind::lamb)) == Names{"exp_avg", "exp_avg_sq"});
  CHECK(state_slots(of(OptimizerKind::muon)) == Names{"exp_avg", "exp_avg_sq"});
  CHECK(state_slots(of(OptimizerKind::one_bit_adam)) == Names{"exp_avg", "exp_avg_sq"});
  OptimizerConfig sgd = of(OptimizerKind::sgd);
  CHECK(state_slots(sgd).empty());
  sgd.momentum = 0.9;
  CHECK(state_slots(sgd) == Names{"momentum"});
  CHECK(all_state_slots() == Names{"exp_avg", "exp_avg_sq", "momentum", "sum"});
}

TEST_CASE(
    "an optimizer's op takes its attributes, and only the steps of Lamb and 1-bit Lamb are scaled "
    "by norms") {
  for (size_t i = 0; i < kOptimizerKinds; ++i) {
    const OptimizerConfig config = of(static_cast<OptimizerKind>(i));
    const OptimizerRule& rule = optimizer_rule(config.kind);
    CHECK_FALSE(rule.name(config).empty());
    CHECK(rule.attrs(config, {.weight_decay = 0.5f}).index() != 0);
    CHECK((rule.scaled_attrs != nullptr) ==
          (config.kind == OptimizerKind::lamb || config.kind == OptimizerKind::one_bit_lamb));
    CHECK((rule.average_attrs != nullptr) == (config.kind == OptimizerKind::one_bit_lamb));
  }
  const auto lamb =
      std::get<LambAttrs>(optimizer_rule(OptimizerKind::lamb)
                              .scaled_attrs(of(OptimizerKind::lamb), {.lr_scale = 0.25f}, 2, 5));
  CHECK(
      lamb ==
      LambAttrs{
          .min_coeff = 0.01f, .max_coeff = 10, .parameter = 2, .parameters = 5, .lr_scale = 0.25f});
}

TEST_CASE("1-bit Adam goes on with the constants of its first steps, without bias corrections") {
  for (size_t i = 0; i < kOptimizerKinds; ++i)
    CHECK((optimizer_rule(static_cast<OptimizerKind>(i)).frozen_attrs != nullptr) ==
          (i >= static_cast<size_t>(OptimizerKind::one_bit_adam)));
  OptimizerConfig config = of(OptimizerKind::one_bit_adam);
  config.eps = 0.25;
  const OptimizerRule& rule = optimizer_rule(config.kind);
  const auto first = std::get<AdamAttrs>(rule.attrs(config, {.weight_decay = 0.5f}));
  CHECK(first.decoupled_decay);
  CHECK(std::get<FrozenAdamAttrs>(rule.frozen_attrs(first)) ==
        FrozenAdamAttrs{.eps = 0.25f, .weight_decay = 0.5f});
  CHECK_FALSE(rule.corrects_bias);
}

TEST_CASE("1-bit Lamb averages trust ratios, and goes on with the constants of its first steps") {
  OptimizerConfig config = of(OptimizerKind::one_bit_lamb);
  config.eps = 0.25;
  config.max_coeff = 2;
  config.min_coeff = 0.5;
  config.one_bit_lamb.coeff_beta = 0.75;
  const OptimizerRule& rule = optimizer_rule(config.kind);
  CHECK(std::get<LambAverageAttrs>(rule.average_attrs(config)) ==
        LambAverageAttrs{.min_coeff = 0.5f, .max_coeff = 2, .beta = 0.75f});
  CHECK(std::get<FrozenLambAttrs>(rule.frozen_attrs(rule.attrs(config, {.weight_decay = 0.5f}))) ==
        FrozenLambAttrs{.eps = 0.25f, .weight_decay = 0.5f});
  CHECK_FALSE(rule.corrects_bias);
  CHECK(freezes(config));
}

TEST_CASE("an optimizer's ops have the weight decay and the lr_scale of a group of parameters") {
  const GroupSettings group{.weight_decay = 0.5f, .lr_scale = 0.25f};
  const auto attrs = [&](OptimizerKind kind) {
    return optimizer_rule(kind).attrs(of(kind), group);
  };
  const auto has_settings = [](const auto& own) {
    CHECK(own.weight_decay == 0.5f);
    CHECK(own.lr_scale == 0.25f);
  };
  has_settings(std::get<AdamAttrs>(attrs(OptimizerKind::adam)));
  has_settings(std::get<SgdAttrs>(attrs(OptimizerKind::sgd)));
  has_settings(std::get<AdagradAttrs>(attrs(OptimizerKind::adagrad)));
  has_settings(std::get<LionAttrs>(attrs(OptimizerKind::lion)));
  has_settings(std::get<AdamAttrs>(attrs(OptimizerKind::muon)));
  has_settings(
      std::get<MuonAttrs>(optimizer_rule(OptimizerKind::muon)
                              .matrices->step_attrs(of(OptimizerKind::muon), group, Shape{4, 4})));
  CHECK(std::get<LambDirectionAttrs>(attrs(OptimizerKind::lamb)).weight_decay == 0.5f);
  CHECK(GroupSettings{} == GroupSettings{.weight_decay = 0, .lr_scale = 1});
}

TEST_CASE("optimizers that freeze a slot decay by the group's decay, at the rate that all have") {
  const GroupSettings group{.weight_decay = 0.5f, .lr_scale = 0.25f}, decay{.weight_decay = 0.5f};
  for (const OptimizerKind kind :
       {OptimizerKind::one_bit_adam, OptimizerKind::zero_one_adam, OptimizerKind::one_bit_lamb}) {
    const OptimizerRule& rule = optimizer_rule(kind);
    const OptimizerConfig config = of(kind);
    CHECK(rule.attrs(config, group) == rule.attrs(config, decay));
    CHECK_FALSE(rule.attrs(config, group) == rule.attrs(config, {}));
    if (rule.scaled_attrs)
      CHECK(rule.scaled_attrs(config, group, 2, 5) == rule.scaled_attrs(config, {}, 2, 5));
  }
}

TEST_CASE("Muon takes hidden matrices, and scales those with more rows than columns") {
  const MatrixRule& rule = *optimizer_rule(OptimizerKind::muon).matrices;
  CHECK(rule.takes("blocks.0.attn.qkv.weight", Shape{12, 4}));
  CHECK(rule.takes("layers.0.weight", Shape{1, 1}));
  CHECK_FALSE(rule.takes("blocks.0.mlp.fc.bias", Shape{12}));
  CHECK_FALSE(rule.takes("token_embedding_table.weight", Shape{9, 4}));
  CHECK_FALSE(rule.takes("Position_Embedding", Shape{9, 4}));
  CHECK_FALSE(rule.takes("lm_head.weight", Shape{9, 4}));
  const auto scale = [&](const Shape& shape) {
    return std::get<MuonAttrs>(rule.step_attrs(of(OptimizerKind::muon), {}, shape)).scale;
  };
  CHECK(scale(Shape{16, 4}) == 2);
  CHECK(scale(Shape{4, 16}) == 1);
  for (size_t i = 0; i < kOptimizerKinds; ++i)
    CHECK((optimizer_rule(static_cast<OptimizerKind>(i)).matrices != nullptr) ==
          (static_cast<OptimizerKind>(i) == OptimizerKind::muon));
}

TEST_CASE("the parameters that a resumed run compares") {
  const auto params = [](OptimizerKind kind) {
    const OptimizerConfig config = of(kind);
    const OptimizerParams list = optimizer_rule(kind).params(config);
    return std::map<std::string_view, std::string>(list.begin(), list.end());
  };
  CHECK(params(OptimizerKind::adam) ==
        std::map<std::string_view, std::string>{
            {"betas", "[0.9, 0.999]"}, {"bias_correction", "true"}, {"eps", "1e-08"}});
  CHECK(params(OptimizerKind::lion).count("eps") == 0);
  CHECK(params(OptimizerKind::lamb).at("max_coeff") == "10");
  CHECK(params(OptimizerKind::muon).at("ns_method") == "gram");
  CHECK(params(OptimizerKind::one_bit_adam).at("freeze_step") == "100000");
  CHECK(params(OptimizerKind::one_bit_lamb).at("factor_threshold") == "0.1");
  CHECK(params(OptimizerKind::one_bit_lamb).at("coeff_beta") == "0.9");
  CHECK(params(OptimizerKind::zero_one_adam).at("local_step_scaler") == "32678");
}

}  // namespace
}  // namespace dstrain
