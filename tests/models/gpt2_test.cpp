// GPT-2 as transformers has it: the numbers of its published sizes, and the names and layout of its files.
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "models/registry.h"
#include "runtime/ir/builder/builder.h"
#include "runtime/plan/build_model.h"
#include "runtime/storage/weight_layout.h"

using namespace dstrain;

namespace {

ModelConfig gpt2_of(std::initializer_list<std::pair<const char*, ModelConfig::Value>> values) {
  ModelConfig model(*model_registry().find("gpt2"));
  for (const auto& [key, value] : values) model.set(key, value);
  return model;
}

ModelConfig small() {
  return gpt2_of({{"n_layer", int64_t{2}},
                  {"n_embd", int64_t{8}},
                  {"n_head", int64_t{2}},
                  {"n_positions", int64_t{5}},
                  {"vocab_size", int64_t{11}}});
}

Program program_of(const ModelConfig& model, bool training = true) {
  Program program;
  Builder builder(program, {.training = training});
  build_model(builder, model);
  return program;
}

// Shapes of the tensors in files, as text, by name.
std::map<std::string, std::string> file_tensors(const ModelConfig& model) {
  StateRegister list;
  for (const Parameter& p : program_of(model).parameters)
    list.push_back({.name = p.name, .global_shape = p.shape});
  std::map<std::string, std::string> shapes;
  const WeightLayout layout(mapped(std::move(list), weight_map_of(model)));
  for (const FileTensor& tensor : layout.tensors()) shapes[tensor.name] = to_string(tensor.shape);
  return shapes;
}

}  // namespace

TEST_CASE("GPT-2's published sizes have their numbers of parameters") {
  CHECK(gpt2_of({}).measures().parameters == 124'439'808);
  const ModelConfig medium =
      gpt2_of({{"n_layer", int64_t{24}}, {"n_embd", int64_t{1024}}, {"n_head", int64_t{16}}});
  CHECK(medium.measures().parameters == 354'823'168);
}

TEST_CASE("GPT-2's files have transformers' names, and products the other way round") {
  const auto tensors = file_tensors(small());
  CHECK(tensors.size() == 2 + 2 * 12 + 2);
  CHECK(tensors.at("transformer.wte.weight") == "(11, 8)");
  CHECK(tensors.at("transformer.wpe.weight") == "(5, 8)");
  CHECK(tensors.at("transformer.h.1.attn.c_attn.weight") == "(8, 24)");
  CHECK(tensors.at("transformer.h.1.attn.c_attn.bias") == "(24)");
  CHECK(tensors.at("transformer.h.0.mlp.c_fc.weight") == "(8, 32)");
  CHECK(tensors.at("transformer.h.0.mlp.c_proj.weight") == "(32, 8)");
  CHECK(tensors.at("transformer.ln_f.bias") == "(8)");

  ModelConfig other = small();
  other.set("tie_word_embeddings", false);
  other.set("n_inner", int64_t{20});
  CHECK(file_tensors(other).at("lm_head.weight") == "(11, 8)");
  CHECK(file_tensors(other).at("transformer.h.0.mlp.c_fc.weight") == "(8, 20)");
}

TEST_CASE("fresh weights of GPT-2 have transformers' deviations") {
  ModelConfig model = small();
  model.set("initializer_range", 0.5);
  for (const Parameter& p : program_of(model).parameters) {
    CAPTURE(p.name);
    if (p.shape.rank == 1) {
      CHECK(p.init == (p.name.ends_with(".bias") ? Init::zeros : Init::ones));
    } else {
      CHECK(p.init == Init::normal);
      const bool residual = p.name.ends_with("c_proj.weight");
      CHECK(p.init_scale == Approx(residual ? 0.5 / std::sqrt(4.0) : 0.5));
    }
  }
}

TEST_CASE("GPT-2 has three dropouts, each with its own probability") {
  ModelConfig model = small();
  model.set("embd_pdrop", 0.1);
  model.set("attn_pdrop", 0.2);
  model.set("resid_pdrop", 0.3);
  const auto probabilities = [](const Program& program) {
    std::map<std::string, int> found;
    for (const Instruction& op : program.instructions) {
      float p = 0;
      if (const auto* attention = std::get_if<AttentionAttrs>(&op.attrs)) p = attention->dropout;
      if (const auto* dropout = std::get_if<DropoutAttrs>(&op.attrs)) p = dropout->dropout;
      if (p > 0) ++found[fmt::format("{} {:.1f}", name_of(op.op), p)];
    }
    return found;
  };
  CHECK(probabilities(program_of(model)) == std::map<std::string, int>{{"dropout_grad 0.1", 1},
                                                                       {"attention 0.2", 2},
                                                                       {"add_dropout 0.3", 4}});
  CHECK(probabilities(program_of(model, false)).empty());
}

TEST_CASE("GPT-2's norms and activation are those of its keys") {
  ModelConfig model = small();
  model.set("layer_norm_epsilon", 0.25);
  int norms = 0, activations = 0;
  for (const Instruction& op : program_of(model).instructions) {
    if (const auto* norm = std::get_if<LayerNormAttrs>(&op.attrs)) {
      CHECK(norm->eps == 0.25f);
      ++norms;
    }
    if (op.op == OpKind::activation) ++activations;
  }
  CHECK(norms == 5);
  CHECK(activations == 2);  // gelu; relu is a part of its product
  model.set("activation_function", std::string("relu"));
  for (const Instruction& op : program_of(model).instructions) CHECK(op.op != OpKind::activation);
}
