// DeepSeek-V3 as transformers has it: shapes and names of latent attention and of experts in groups, what its keys say, and what is
// refused.
#include <catch2/catch.hpp>
#include <cmath>

#include "models/decoder/latent.h"
#include "runtime/config/family/family.h"
#include "tests/models/described_decoder.h"

namespace dstrain::test {
namespace {

using Catch::Contains;

const std::string kLatentHeads =
    R"("num_key_value_heads": 4, "kv_lora_rank": 7, "qk_nope_head_dim": 6,
                              "qk_rope_head_dim": 4)";
const std::string kLatent =
    kLatentHeads + R"(, "v_head_dim": 5, "n_routed_experts": 8, "n_group": 4, "topk_group": 2,
                               "num_experts_per_tok": 3, "moe_intermediate_size": 9, "first_k_dense_replace": 1)";
const std::string kDeepSeek = kLatent + R"(, "q_lora_rank": 10, "n_shared_experts": 2)";

TEST_CASE("DeepSeek-V3: its tensors have transformers' names and shapes") {
  const ModelConfig model = decoder_of("deepseek_v3", kDeepSeek);
  const auto shapes = decoder_shapes(model);
  const std::string layer = "model.layers.1.";
  for (const auto& [name, shape] : {std::pair{"self_attn.q_a_proj.weight", "(10, 24)"},
                                    {"self_attn.q_a_layernorm.weight", "(10)"},
                                    {"self_attn.q_b_proj.weight", "(40, 10)"},
                                    {"self_attn.kv_a_proj_with_mqa.weight", "(11, 24)"},
                                    {"self_attn.kv_a_layernorm.weight", "(7)"},
                                    {"self_attn.kv_b_proj.weight", "(44, 7)"},
                                    {"self_attn.o_proj.weight", "(24, 20)"},
                                    {"mlp.gate.weight", "(8, 24)"},
                                    {"mlp.experts.gate_proj.weight", "(72, 24)"},
                                    {"mlp.shared_experts.up_proj.weight", "(18, 24)"}})
    CHECK(shapes.at(layer + name) == shape);
  CHECK(shapes.at("model.layers.0.mlp.gate_proj.weight") == "(20, 24)");
  CHECK(shapes.count("model.layers.0.mlp.gate.weight") == 0);
  CHECK(shapes.count(layer + "mlp.gate.e_score_correction_bias") == 0);  // state, and no parameter
  const Program program = decoder_program(model);
  REQUIRE(program.registered.size() == 2);
  CHECK(program.registered[0].name == layer + "mlp.gate.e_score_correction_bias");
  const ModelConfig direct = decoder_of("deepseek_v3", kLatent + R"(, "q_lora_rank": null)");
  CHECK(decoder_shapes(direct).at(layer + "self_attn.q_proj.weight") == "(40, 24)");
  CHECK(decoder_shapes(direct).count(layer + "self_attn.q_a_proj.weight") == 0);
}

TEST_CASE(
    "DeepSeek-V3: groups, scores, rotated columns and the scale of scores are those of its keys") {
  const ModelConfig model = decoder_of("deepseek_v3", kDeepSeek);
  const RouteAttrs usual{.scores = RouterScores::sigmoid,
                         .normalised = true,
                         .epsilon = 1e-20f,
                         .scale = 2.5f,
                         .groups = 4,
                         .kept_groups = 2};
  CHECK(attrs_of<RouteAttrs>(model, OpKind::route) == std::vector<RouteAttrs>{usual, usual});
  RouteAttrs other = usual;
  other.normalised = false;
  other.scale = 1.5f;
  CHECK(attrs_of<RouteAttrs>(decoder_of("deepseek_v3", kDeepSeek + R"(, "norm_topk_prob": false,
                                                                      "routed_scaling_factor": 1.5)"),
                             OpKind::route)[0] == other);
  const auto rotations = attrs_of<RotaryAttrs>(model, OpKind::rotary);
  REQUIRE(rotations.size() == 6);
  CHECK((rotations[0].head_size == 10 && rotations[0].rotated == 4 &&
         rotations[0].first_column == 6));
  CHECK((rotations[1].head_size == 4 && rotations[1].first_column == 0));
  CHECK((rotations[0].interleaved && rotations[1].interleaved));
  CHECK_FALSE(
      attrs_of<RotaryAttrs>(decoder_of("deepseek_v3", kDeepSeek + R"(, "rope_interleave": false)"),
                            OpKind::rotary)[0]
          .interleaved);
  CHECK(attrs_of<AttentionAttrs>(model, OpKind::attention)[0].scale == Approx(1 / std::sqrt(10.0)));
  const ModelConfig longer = decoder_of(
      "deepseek_v3", kDeepSeek + R"(, "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0,
                     "mscale_all_dim": 0.5, "original_max_position_embeddings": 3})");
  const double mscale = 0.05 * std::log(40.0) + 1;
  CHECK(attrs_of<AttentionAttrs>(longer, OpKind::attention)[0].scale ==
        Approx(mscale * mscale / std::sqrt(10.0)));
}

TEST_CASE("DeepSeek-V3: a head has the columns of the wider of keys and values") {
  const auto columns = [](const std::string& values) {
    const Program program =
        decoder_program(decoder_of("deepseek_v3", kLatentHeads + R"(, "v_head_dim": )" + values));
    for (const Instruction& op : program.instructions)
      if (op.op == OpKind::attention) return program.at(op.writes[0]).shape[-1];
    return int64_t{0};
  };
  CHECK(columns("5") == 40);
  CHECK(columns("13") == 52);
}

TEST_CASE("DeepSeek-V3: layers that predict further tokens are left out of files") {
  const auto ignored = [](const std::string& members) {
    const ModelConfig model = decoder_of("deepseek_v3", kDeepSeek + members);
    return model.family().hugging_face->ignored(model);
  };
  CHECK(ignored("").back() == "layers.3.*");
  CHECK(ignored(R"(, "num_nextn_predict_layers": 0)").size() == 1);
  CHECK(ignored(R"(, "num_mtp_layers": 2)").back() == "layers.4.*");
}

TEST_CASE("DeepSeek-V3: files of 8-bit floats are read, and a run's are not quantized") {
  const auto member = [](const std::string& quantization) {
    return kDeepSeek + R"(, "quantization_config": )" + quantization;
  };
  const auto said = [&](const std::string& quantization) {
    TempDir dir;
    return verdict(asked_decoder("deepseek_v3", member(quantization), dir).check(),
                   "dstrain.model.quantization_config");
  };
  const std::string fp8 = R"({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
                              "weight_block_size": [128, 128]})";
  CHECK_THAT(said(fp8), Contains("honoured: weights are widened"));
  CHECK(said("null") == "no_effect: unset");
  CHECK_THAT(said(R"({"quant_method": "fp8", "weight_block_size": [64, 128]})"),
             Contains("refused: ") && Contains("FineGrainedFP8Config(dequantize=True)"));
  CHECK_THAT(said(R"({"quant_method": "mxfp4"})"),
             Contains("Mxfp4Config(dequantize=True)), m.save_pretrained(OTHER)"));
  TempDir dir;
  const LoadedConfig loaded = asked_decoder("deepseek_v3", member(fp8), dir).load();
  CHECK(loaded.config_json.find("quantization_config") == std::string::npos);
  CHECK(loaded.config_json.find("kv_lora_rank") != std::string::npos);
}

TEST_CASE("DeepSeek-V3: what is refused is named") {
  // Members that come behind others are `sets`, which may change those.
  const auto error = [](const std::string& members, const std::vector<std::string>& sets = {}) {
    return decoder_error("deepseek_v3", kDeepSeek + members, sets);
  };
  CHECK_THAT(error("", {"dstrain.model.num_key_value_heads=2"}),
             Contains("expected num_key_value_heads 4"));
  CHECK_THAT(error("", {"dstrain.model.n_group=3"}),
             Contains("8 experts do not divide into 3 groups of 2 or more"));
  CHECK_THAT(error("", {"dstrain.model.topk_group=5"}),
             Contains("a token chooses from 5 of 4 groups"));
  CHECK_THAT(error("", {"dstrain.model.topk_group=1"}),
             Contains("a token chooses 3 experts from 1 groups of 2"));
  CHECK_THAT(error("", {"dstrain.model.qk_rope_head_dim=5"}), Contains("an even number"));
  CHECK_THAT(error(R"(, "scoring_func": "softmax")"), Contains("other scores of experts"));
  CHECK_THAT(error(R"(, "topk_method": "greedy")"), Contains("another choice of experts"));
  CHECK_THAT(error(R"(, "moe_layer_freq": 2)"), Contains("only 1 is available"));
}

}  // namespace
}  // namespace dstrain::test
