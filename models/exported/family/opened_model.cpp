#include "models/exported/family/opened_model.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <set>
#include <utility>

#include "models/exported/fold/elements.h"
#include "models/exported/graph/solve_sizes.h"
#include "models/exported/lower/blocks.h"
#include "models/exported/lower/lower_graph.h"
#include "models/measure.h"
#include "runtime/core/error.h"

namespace dstrain::exported {
namespace {

// The usual names of inputs that texts give.
constexpr std::array<std::string_view, 3> kTokenNames = {"idx", "input_ids", "tokens"};
constexpr std::array<std::string_view, 3> kTargetNames = {"tgt", "targets", "target"};
// The name by which transformers' models take the tokens themselves, which they shift.
constexpr std::string_view kUnshifted = "labels";

constexpr std::string_view kContext = "context", kVocabulary = "vocab_size";

template <size_t N>
bool has(const std::array<std::string_view, N>& names, std::string_view name) {
  return std::ranges::find(names, name) != names.end();
}

// Returns the name that safetensors files have for an element type.
std::string safetensors_name(ScalarType type) {
  if (type == ScalarType::boolean) return "BOOL";
  if (type == ScalarType::f8_e4m3) return "F8_E4M3";
  if (type == ScalarType::f8_e5m2) return "F8_E5M2";
  std::string upper(name_of(type));
  std::ranges::transform(upper, upper.begin(),
                         [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  return upper;
}

// Returns how fresh values are like those of the archive: zeros, ones, or normal with their root mean square. Large tensors,
// and those that the archive has no values of, are taken to be weights of a product.
ParameterFacts like_values(const ExportedModel& model, const StoredTensor& tensor) {
  constexpr int64_t kMostElements = 1 << 16;
  const double inputs = tensor.sizes.empty() ? 1 : static_cast<double>(tensor.sizes.back());
  const ParameterFacts usual{.init = Init::normal,
                             .scale = static_cast<float>(1 / std::sqrt(inputs))};
  if (tensor.is_absent || tensor.elements() > kMostElements || tensor.elements() == 0) return usual;
  const std::string bytes = read_elements(model.archive, tensor);
  const auto read = loader_of<double>(tensor.type);
  const int64_t size = size_of(tensor.type);
  double squares = 0;
  bool ones = true;
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    const double x = read(bytes.data() + i * size);
    squares += x * x;
    ones = ones && x == 1;
  }
  if (ones) return {.init = Init::ones};
  const double root = std::sqrt(squares / static_cast<double>(tensor.elements()));
  if (root == 0) return {.init = Init::zeros};
  return std::isfinite(root)
             ? ParameterFacts{.init = Init::normal, .scale = static_cast<float>(root)}
             : usual;
}

std::vector<const GraphInput*> user_inputs(const Graph& graph) {
  std::vector<const GraphInput*> inputs;
  for (const GraphInput& input : graph.inputs)
    if (input.kind == InputKind::user) inputs.push_back(&input);
  return inputs;
}

// Returns the rows of the table that an input of token ids chooses from; 0: it is not known.
int64_t rows_of_table(const Graph& graph, const GraphInput& ids) {
  for (const Node& node : graph.nodes)
    if (node.target == "aten.embedding.default" && node.tensor("indices") == ids.tensor)
      return graph.tensor(node.tensor("weight")).sizes[0].value();
  return 0;
}

}  // namespace

OpenedModel::OpenedModel(const std::string& path, bool arrays, const std::vector<ModelKey>& keys)
    : model_(read_exported(path)) {
  family_.type = "exported";
  family_.title = "exported model";
  family_.keys = keys;
  family_.is_fixed = true;
  family_.file_key = "file";
  find_batch();
  find_inputs(arrays);
  find_parameters();
  const Graph& graph = model_.graph;
  const std::vector<GraphLayer> layers =
      layers_of(folded(std::max<int64_t>(family_.batch, 1))->graph);
  family_.layers_key = add_size(
      "layers", std::ranges::count_if(layers, [](const GraphLayer& l) { return l.number >= 0; }));
  int64_t width = 1;
  for (const GraphInput& input : graph.inputs)
    if (input.kind == InputKind::parameter)
      for (const Size& size : graph.tensor(input.tensor).sizes)
        width = std::max(width, std::min<int64_t>(size.value(), 1 << 14));
  family_.width_key = add_size("width", width);
  family_.build = [this](Builder& builder, const ModelConfig&) { build(builder); };
  family_.measure = measure_model;
  family_.names_of_weights = [this] { return names_of_weights(); };
  family_.kept_tensors = [this] { return kept_tensors(); };
}

void OpenedModel::find_batch() {
  const Graph& graph = model_.graph;
  const std::vector<const GraphInput*> inputs = user_inputs(graph);
  if (inputs.empty()) fail_user("{}: the graph has no inputs", model_.archive.path());
  for (const GraphInput* input : inputs) {
    const TensorInfo& tensor = graph.tensor(input->tensor);
    if (tensor.sizes.empty())
      fail_user("{}: input {} has no dimension: expected samples first", model_.archive.path(),
                input->name);
    for (size_t d = 1; d < tensor.sizes.size(); ++d)
      if (!tensor.sizes[d].is_fixed())
        fail_user(
            "{}: input {} has the shape {}, of which more than the batch may vary, which is not "
            "supported: export the model with one length of samples",
            model_.archive.path(), input->name, to_string(tensor.sizes));
    const Size& batch = tensor.sizes[0];
    if (batch.is_fixed() && family_.batch > 0 && family_.batch != batch.value())
      fail_user("{}: inputs have {} and {} samples: expected the same number in all",
                model_.archive.path(), family_.batch, batch.value());
    if (batch.is_fixed()) family_.batch = batch.value();
  }
}

std::string_view OpenedModel::add_size(std::string_view name, int64_t value) {
  const std::string& path = texts_.emplace_back(model_path(name));
  const std::string& text = texts_.emplace_back(std::to_string(value));
  family_.keys.push_back({{.key = path, .type = Type::integer, .fallback = text}});
  return family_.keys.back().name();
}

void OpenedModel::find_inputs(bool arrays) {
  const Graph& graph = model_.graph;
  std::vector<std::string> others;
  for (const GraphInput* input : user_inputs(graph)) {
    const TensorInfo& tensor = graph.tensor(input->tensor);
    InputRole role = InputRole::array;
    if (!arrays) {
      const bool sequence = tensor.sizes.size() == 2 && !is_floating(tensor.type);
      if (sequence && has(kTokenNames, input->name))
        role = InputRole::token_ids;
      else if (sequence && (has(kTargetNames, input->name) || input->name == kUnshifted))
        role = InputRole::labels;
      else
        others.push_back(input->name);
    }
    ModelInput& of_family = family_.inputs.emplace_back();
    of_family.name = texts_.emplace_back(input->name);
    of_family.role = role;
    of_family.dtype = is_floating(tensor.type) ? DType::f32 : DType::i32;
    facts_.roles[input->name] = role;
    if (role == InputRole::labels && input->name == kUnshifted) facts_.unshifted = input->name;
    if (role == InputRole::array) {
      for (size_t d = 1; d < tensor.sizes.size(); ++d)
        of_family.sizes.push_back(tensor.sizes[d].value());
      continue;
    }
    of_family.shape = {kContext};
    of_family.classes = kVocabulary;
    if (role != InputRole::token_ids) continue;
    add_size(kContext, tensor.sizes[1].value());
    add_size(kVocabulary, rows_of_table(graph, *input));
  }
  if (!others.empty())
    fail_user(
        "{}: texts do not give the inputs {}: expected one of {} and one of {}, {} alone; data of "
        "arrays give any: --set dstrain.data.format=arrays",
        model_.archive.path(), fmt::join(others, ", "), fmt::join(kTokenNames, ", "),
        fmt::join(kTargetNames, ", "), kUnshifted);
  if (!arrays && !family_.predicts_tokens())
    fail_user(
        "{}: texts give an input of token ids and one of targets, of the same shape, and the graph "
        "has others; data of arrays give any: --set dstrain.data.format=arrays",
        model_.archive.path());
}

void OpenedModel::find_parameters() {
  // Statistics of batch norm are state that steps change.
  for (const Node& node : model_.graph.nodes) {
    if (node.target != "aten._native_batch_norm_legit_functional.default") continue;
    for (const char* const argument : {"running_mean", "running_var"})
      for (const GraphInput& input : model_.graph.inputs)
        if (input.kind == InputKind::buffer && input.tensor == node.tensor(argument))
          facts_.running.insert(input.name);
  }
  for (const GraphInput& input : model_.graph.inputs) {
    if (input.kind != InputKind::parameter) continue;
    ParameterFacts facts = like_values(model_, *model_.find(input.name));
    facts.name = first_name(input.name);
    facts_.parameters.emplace(input.name, std::move(facts));
  }
}

SymbolValues OpenedModel::symbols(int64_t batch) const {
  std::vector<InputSizes> inputs;
  for (const GraphInput* input : user_inputs(model_.graph)) {
    InputSizes sizes{input->name, {batch}};
    const TensorInfo& tensor = model_.graph.tensor(input->tensor);
    for (size_t d = 1; d < tensor.sizes.size(); ++d) sizes.sizes.push_back(tensor.sizes[d].value());
    inputs.push_back(std::move(sizes));
  }
  return solve_symbols(model_.graph, inputs);
}

std::shared_ptr<const FoldedGraph> OpenedModel::folded(int64_t batch) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const FoldedGraph>& known = folded_[batch];
  if (!known)
    known =
        std::make_shared<const FoldedGraph>(fold(model_, with_sizes(model_.graph, symbols(batch))));
  return known;
}

void OpenedModel::build(Builder& builder) const {
  try {
    const std::shared_ptr<const FoldedGraph> graph = folded(builder.options().batch);
    lower_graph(builder, *graph, facts_);
  } catch (const UserError& e) {
    fail_user("{}: {}", model_.archive.path(), e.what());
  }
}

std::vector<const StoredTensor*> OpenedModel::read_weights() const {
  std::set<int32_t> read;
  for (const Node& node : model_.graph.nodes)
    for_each_operand(node, [&read](TensorRef ref) { read.insert(ref.id); });
  std::vector<const StoredTensor*> parameters;
  for (const GraphInput& input : model_.graph.inputs) {
    if (input.kind != InputKind::parameter || !read.contains(input.tensor.id)) continue;
    const StoredTensor* const tensor = model_.find(first_name(input.name));
    if (std::ranges::find(parameters, tensor) == parameters.end()) parameters.push_back(tensor);
  }
  for (const std::string& name : facts_.running) parameters.push_back(model_.find(name));
  return parameters;
}

const std::string& OpenedModel::first_name(const std::string& parameter) const {
  const StoredTensor* const own = model_.find(parameter);
  check(own != nullptr, "{} has no parameter {}", model_.archive.path(), parameter);
  // Inputs are in the order of the module's state.
  for (const GraphInput& input : model_.graph.inputs) {
    const StoredTensor* const tensor =
        input.kind == InputKind::parameter ? model_.find(input.name) : nullptr;
    if (tensor && !tensor->is_absent && tensor->group == own->group) return tensor->name;
  }
  return own->name;
}

ForeignNames OpenedModel::names_of_weights() const {
  ForeignNames names{.archive = model_.archive.path()};
  for (const StoredTensor* tensor : read_weights()) {
    if (tensor->is_absent) continue;
    if (!tensor->is_contiguous())
      fail_user(
          "{}: parameter {} has another order in memory than its dimensions: export the model "
          "after "
          "model.to(memory_format=torch.contiguous_format)",
          model_.archive.path(), tensor->name);
    names.tensors.push_back({.name = tensor->name,
                             .dtype = safetensors_name(tensor->type),
                             .shape = tensor->sizes,
                             .begin = tensor->file_offset(),
                             .bytes = tensor->elements() * size_of(tensor->type)});
  }
  for (const KeptTensor& kept : kept_tensors()) names.ignored.push_back(kept.name);
  return names;
}

std::vector<KeptTensor> OpenedModel::kept_tensors() const {
  std::set<int> read;
  for (const StoredTensor* tensor : read_weights()) read.insert(tensor->group);
  std::vector<KeptTensor> kept;
  for (const StoredTensor& tensor : model_.tensors) {
    if (tensor.is_constant || tensor.is_absent || read.contains(tensor.group)) continue;
    kept.push_back({.name = tensor.name,
                    .dtype = safetensors_name(tensor.type),
                    .shape = tensor.sizes,
                    .bytes = read_elements(model_.archive, tensor)});
  }
  return kept;
}

}  // namespace dstrain::exported
