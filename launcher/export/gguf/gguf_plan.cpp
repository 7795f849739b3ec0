#include "launcher/export/gguf/gguf_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <variant>

#include "launcher/export/gguf/gguf_tokenizer.h"
#include "launcher/export/model_folder.h"
#include "launcher/input/trained_model.h"
#include "models/gguf/gguf_names.h"
#include "models/gguf_registry.h"
#include "runtime/config/family/family.h"
#include "runtime/core/blocks/q8_0.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

using models::GgufModel;

// The field general.file_type, by the type of most tensors: llama.cpp's numbers.
uint32_t file_type_of(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return 0;
    case GgufType::f16:
      return 1;
    case GgufType::q8_0:
      return 7;
    case GgufType::bf16:
      return 32;
  }
  return 0;
}

GgufType type_of(DType dtype) {
  if (dtype == DType::f16) return GgufType::f16;
  return dtype == DType::bf16 ? GgufType::bf16 : GgufType::f32;
}

GgufModel described(const ModelConfig& model) {
  const ModelFamily& family = model.family();
  constexpr std::string_view advice = "--format hf and --format safetensors write other files";
  if (model.gives_score())
    fail_user("--format gguf: the {} gives a score, which llama.cpp's architectures do not: {}",
              family.title, advice);
  auto description = gguf_of(model);
  if (!description)
    fail_user("--format gguf: llama.cpp has no architecture that computes what a {} does: {}",
              family.title, advice);
  if (const auto* problem = std::get_if<KeyProblem>(&*description))
    fail_user("--format gguf: {}: {}; {}", problem->keys.front(), problem->message, advice);
  return std::get<GgufModel>(std::move(*description));
}

// A name of a parameter: that of its place in any layer, the layer's number, and ".weight" or ".bias".
struct ParameterName {
  std::string place, layer, end;
};

ParameterName parsed(const std::string& name) {
  ParameterName parts;
  const size_t dot = name.rfind('.');
  if (dot == name.npos) return {name, "", ""};
  parts.end = name.substr(dot);
  for (size_t at = 0; at < dot;) {
    const size_t next = std::min(name.find('.', at), dot);
    const std::string word = name.substr(at, next - at);
    const bool number = word.find_first_not_of("0123456789") == word.npos;
    if (number) parts.layer = word;
    if (at > 0) parts.place += '.';
    parts.place += number ? "*" : word;
    at = next + 1;
  }
  return parts;
}

std::vector<GgufField> general_fields(const ExportPlan& plan, const GgufModel& model,
                                      GgufType type) {
  constexpr uint32_t quantization = 2;  // the version of ggml's blocks
  const std::filesystem::path folder =
      std::filesystem::absolute(plan.run.place.run_dir).lexically_normal();
  const std::string name =
      folder.has_filename() ? folder.filename().string() : folder.parent_path().filename().string();
  return {{"general.architecture", std::string(model.architecture)},
          {"general.type", std::string("model")},
          {"general.name", name},
          {"general.file_type", file_type_of(type)},
          {"general.quantization_version", quantization}};
}

}  // namespace

void add_gguf_tensors(const GgufModel& model, const StateRegister& own, GgufType type,
                      GgufPlan& plan) {
  if (!model.rope_freqs.empty()) {
    plan.tensors.push_back({"rope_freqs.weight", {std::ssize(model.rope_freqs)}, GgufType::f32});
    plan.sources.push_back({.weight = GgufPlan::kComputed, .values = model.rope_freqs});
  }
  for (size_t weight = 0; weight < own.size(); ++weight) {
    const ParameterName name = parsed(own[weight].name);
    const auto known = std::ranges::find(model.names, name.place, &models::GgufName::own);
    check(known != model.names.end(), "{} has no name in a GGUF file", own[weight].name);
    std::string written(known->written);
    if (const size_t star = written.find('*'); star != written.npos)
      written.replace(star, 1, name.layer);
    GgufTensor tensor{.name = written + name.end, .shape = {}};
    const Shape& shape = own[weight].global_shape;
    for (int i = 0; i < shape.rank; ++i) tensor.shape.push_back(shape[i]);
    tensor.type = models::is_in_f32(tensor.name, tensor.shape.size()) ? GgufType::f32 : type;
    if (tensor.type == GgufType::q8_0 && tensor.shape.back() % kQ80Values != 0)
      tensor.type = GgufType::f16;
    plan.tensors.push_back(std::move(tensor));
    plan.sources.push_back({.weight = weight, .change = known->change});
  }
  plan.head_size = model.head_size;
}

GgufPlan plan_gguf(const ExportPlan& plan, const ExportArguments& arguments) {
  const ModelConfig& config = plan.run.job.model;
  const GgufModel model = described(config);
  const GgufType type =
      arguments.q8_0 ? GgufType::q8_0
                     : type_of(plan.format.dtype(std::string(config.family().hugging_face->table)));
  GgufPlan file{.path = fmt::format("{}/{}", plan.output, kGgufName)};
  std::vector<GgufField> fields = general_fields(plan, model, type);
  fields.insert(fields.end(), model.fields.begin(), model.fields.end());
  GgufTokenizer tokenizer = gguf_tokenizer(tokenizer_of(plan.run), config.vocabulary());
  fields.insert(fields.end(), tokenizer.fields.begin(), tokenizer.fields.end());
  for (const auto& warnings : {model.warnings, tokenizer.warnings})
    for (const std::string& warning : warnings) log::warn("--format gguf: {}", warning);
  add_gguf_tensors(model, plan.own, type, file);
  file.layout = gguf_layout(fields, file.tensors);
  return file;
}

}  // namespace dstrain
