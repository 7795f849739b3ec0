// Mixtral, Qwen2-MoE, Qwen3-MoE and OLMoE as transformers has them: names of their files, which layers have experts, how choices
// are weighed, and what is refused.
#include "models/decoder/mixture.h"

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "tests/models/described_decoder.h"

namespace dstrain::test {
namespace {

using Catch::Contains;

const std::string kMixtral = R"("num_key_value_heads": 2, "num_local_experts": 3)";
const std::string kQwen = R"("num_key_value_heads": 2, "num_experts": 3, "num_experts_per_tok": 2,
                             "moe_intermediate_size": 5)";

std::vector<int64_t> experts_of(const ModelConfig& model) {
  std::vector<int64_t> layers;
  for (const Parameter& p : decoder_program(model).parameters)
    if (p.name.ends_with(".gate.weight")) layers.push_back(p.shape[0]);
  return layers;
}

TEST_CASE("mixtures: one parameter has the rows of all experts, files a tensor for each") {
  const ModelConfig model = decoder_of("mixtral", kMixtral);
  const auto shapes = decoder_shapes(model);
  const std::string block = "model.layers.2.block_sparse_moe.";
  CHECK(shapes.at(block + "gate.weight") == "(3, 24)");
  CHECK(shapes.at(block + "experts.w1.weight") == "(60, 24)");
  CHECK(shapes.at(block + "experts.w3.weight") == "(60, 24)");
  CHECK(shapes.at(block + "experts.w2.weight") == "(72, 20)");
  CHECK(shapes.count("model.layers.2.mlp.gate_proj.weight") == 0);
  const WeightMap map = weight_map_of(model);
  REQUIRE(map.size() == 9);
  CHECK(map[2].parameter == "model.layers.0.block_sparse_moe.experts.w2.weight");
  REQUIRE(map[2].parts.size() == 3);
  CHECK(map[2].parts[1].tensor == "model.layers.0.block_sparse_moe.experts.1.w2.weight");
  CHECK((map[2].parts[1].rows == 24 && map[2].parts[1].first == 0));
  CHECK(weight_map_of(decoder_of("olmoe", R"("num_experts": 8)"))[0].parts[7].tensor ==
        "model.layers.0.mlp.experts.7.gate_proj.weight");
}

TEST_CASE("mixtures: layers without experts have an MLP, and some have one beside the experts") {
  CHECK(experts_of(decoder_of("qwen3_moe", kQwen)) == std::vector<int64_t>{3, 3, 3});
  const ModelConfig model =
      decoder_of("qwen2_moe", kQwen + R"(, "mlp_only_layers": [0], "decoder_sparse_step": 1,
                                         "shared_expert_intermediate_size": 7)");
  CHECK(experts_of(model) == std::vector<int64_t>{3, 3});
  const auto shapes = decoder_shapes(model);
  CHECK(shapes.at("model.layers.0.mlp.gate_proj.weight") == "(20, 24)");
  CHECK(shapes.at("model.layers.1.mlp.experts.gate_proj.weight") == "(15, 24)");
  CHECK(shapes.at("model.layers.1.mlp.shared_expert.down_proj.weight") == "(24, 7)");
  CHECK(shapes.at("model.layers.1.mlp.shared_expert_gate.weight") == "(1, 24)");
  CHECK(shapes.at("model.layers.1.self_attn.q_proj.bias") == "(24)");
  CHECK(weight_map_of(model).size() == 6);
  CHECK(experts_of(decoder_of("qwen3_moe", kQwen + R"(, "decoder_sparse_step": 2)")) ==
        std::vector<int64_t>{3});
  CHECK(experts_of(decoder_of("qwen3_moe", kQwen + R"(, "mlp_only_layers": null)")).size() == 3);
}

TEST_CASE("mixtures: how choices are weighed") {
  const auto routes = [](const std::string& type, const std::string& members) {
    return attrs_of<RouteAttrs>(decoder_of(type, members), OpKind::route)[0];
  };
  CHECK(routes("mixtral", kMixtral) == RouteAttrs{.normalised = true});
  CHECK(routes("qwen3_moe", kQwen) == RouteAttrs{.rounded = true});
  CHECK(routes("qwen3_moe", kQwen + R"(, "norm_topk_prob": true)") ==
        RouteAttrs{.normalised = true, .rounded = true});
}

TEST_CASE("mixtures: the number of experts has two names") {
  for (const auto& [type, name, other] :
       {std::tuple("mixtral", "num_local_experts", "num_experts"),
        std::tuple("qwen3_moe", "num_experts", "num_local_experts"),
        std::tuple("olmoe", "num_experts", "num_local_experts")}) {
    const auto member = [](const char* of, int count) {
      return fmt::format(R"("{}": {})", of, count);
    };
    const std::string rest = R"(, "num_key_value_heads": 2, "num_experts_per_tok": 2)";
    CHECK(decoder_of(type, member(other, 5) + rest).integer(name) == 5);
    CHECK(decoder_of(type, member(other, 5) + ", " + member(name, 5) + rest).integer(name) == 5);
    CHECK_THAT(decoder_error(type, member(other, 4) + ", " + member(name, 5) + rest),
               Contains(other) && Contains("which has other experts: keep one"));
  }
}

// The formulas of maps without views.
std::vector<Formula> limits_of(const ModelConfig& model) {
  std::vector<Formula> limits;
  for (const MapAttrs& attrs : attrs_of<MapAttrs>(model, OpKind::map))
    if (attrs.views.empty()) limits.push_back(attrs.formula);
  return limits;
}

TEST_CASE("mixtures: OLMoE has norms of all heads together, and limits of what they get") {
  const ModelConfig plain = decoder_of("olmoe", R"("num_experts": 8, "clip_qkv": null)");
  CHECK(decoder_shapes(plain).at("model.layers.0.self_attn.q_norm.weight") == "(24)");
  CHECK(limits_of(plain).empty());
  const ModelConfig clips = decoder_of("olmoe", R"("num_experts": 8, "clip_qkv": 0.5)");
  REQUIRE(limits_of(clips).size() == 9);
  const Formula limit = limits_of(clips)[0];
  const std::vector<double> values{-0.75}, small{0.25};
  CHECK(limit.value(values) == -0.5);
  CHECK(limit.value(small) == 0.25);
}

TEST_CASE("mixtures: losses of routers and the load of experts come before the next token's") {
  const auto losses = [](const std::string& members, const ForwardOptions& options = {}) {
    std::vector<std::string> names;
    Program program;
    Builder builder(program, options);
    build_model(builder, decoder_of("mixtral", kMixtral + members));
    for (const ProgramLoss& loss : program.losses)
      if (!loss.is_metric || !loss.metric.empty())
        names.push_back(fmt::format("{} {:g}", loss.name, loss.weight));
    return names;
  };
  using Names = std::vector<std::string>;
  const std::string load = "metric:expert_load 0", balances = R"(, "output_router_logits": true)";
  CHECK(losses("") == Names{load, "loss 1"});
  CHECK(losses(balances) == Names{load, "aux_loss 0.001", "loss 1"});
  CHECK(losses(balances + R"(, "router_aux_loss_coef": 0.5)")[1] == "aux_loss 0.5");
  CHECK(losses("", {.router_z_loss = 0.25f}) == Names{load, "router_z_loss 0.25", "loss 1"});
  CHECK(losses(balances, {.training = false}) == Names{"aux_loss 0.001", "loss 1"});
  CHECK(losses(balances, {.training = false, .with_loss = false}).empty());
}

TEST_CASE("mixtures: what is refused is named") {
  CHECK_THAT(decoder_error("mixtral", kMixtral + R"(, "num_experts_per_tok": 4)"),
             Contains("a token chooses 4 of 3 experts"));
  CHECK_THAT(decoder_error("mixtral", kMixtral + R"(, "router_jitter_noise": 0.1)"),
             Contains("noise in front of the router: only 0.0 is available"));
  CHECK_THAT(decoder_error("qwen2_moe", kQwen + R"(, "use_sliding_window": true)"),
             Contains("layers with a window: only false is available"));
  CHECK_THAT(decoder_error("qwen2_moe", kQwen + R"(, "qkv_bias": false)"),
             Contains("only true is available"));
  CHECK_THAT(decoder_error("mixtral", kMixtral, {"dstrain.experts.bias_update=0.1"}),
             Contains("the Mixtral has no biases by which tokens choose experts"));
  CHECK_THAT(decoder_error("llama", "", {"dstrain.experts.z_loss=0.1"}),
             Contains("the Llama has no experts"));
  TempDir dir;
  Ask divided = asked_decoder("qwen3_moe", kQwen, dir);
  divided.request.ranks = 2;
  divided.request.sets = {"tensor_parallel.autotp_size=2"};
  CHECK_THAT(divided.error(), Contains("the layers of the Qwen3-MoE are not divided among ranks"));
  divided.request.sets = {"sequence_parallel_size=2"};
  CHECK_THAT(divided.error(), Contains("the samples of the Qwen3-MoE are not divided among ranks"));
  CHECK_THAT(decoder_error("qwen3_moe", kQwen + R"(, "mlp_only_layers": [0], "dense_layers": "1")"),
             Contains("dense_layers, which has other layers: keep one"));
}

TEST_CASE("mixtures: a config.json that is written has transformers' lists") {
  TempDir dir;
  const LoadedConfig loaded =
      asked_decoder("qwen3_moe", kQwen + R"(, "mlp_only_layers": [2, 0])", dir).load();
  const auto written = nlohmann::json::parse(loaded.config_json);
  CHECK(written["mlp_only_layers"] == nlohmann::json{2, 0});
  CHECK_FALSE(written.contains("dense_layers"));
  CHECK(written["num_experts"] == 3);
}

}  // namespace
}  // namespace dstrain::test
