#include "models/exported/family/opened_model.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>
#include <utility>

#include "models/exported/fold/elements.h"
#include "models/exported/graph/solve_sizes.h"
#include "models/exported/lower/blocks.h"
#include "models/exported/lower/lower_graph.h"
#include "models/exported/lower/metrics.h"
#include "models/measure.h"
#include "runtime/config/json/reader.h"
#include "runtime/core/error.h"

namespace dstrain::exported {
namespace {

constexpr std::string_view kContext = "context", kVocabulary = "vocab_size";

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

// Returns the rows of the table that an input of token ids chooses from; 0: it is not known.
int64_t rows_of_table(const Graph& graph, const GraphInput& ids) {
  for (const Node& node : graph.nodes)
    if (node.target == "aten.embedding.default" && node.tensor("indices") == ids.tensor)
      return graph.tensor(node.tensor("weight")).sizes[0].value();
  return 0;
}

}  // namespace

OpenedModel::OpenedModel(GraphSettings settings, GivenData data, const std::vector<ModelKey>& keys)
    : settings_(std::move(settings)), model_(read_exported(settings_.file)) {
  family_.type = "exported";
  family_.title = "exported model";
  family_.keys = keys;
  family_.is_fixed = true;
  family_.file_key = "file";
  family_.inputs_key = "inputs";
  find_batch();
  find_inputs(data);
  find_parameters();
  check_prefix();
  find_metrics();
  find_layers();
  family_.build = [this](Builder& builder, const ModelConfig&) { build(builder); };
  family_.measure = measure_model;
  family_.names_of_weights = [this] { return names_of_weights(); };
  family_.kept_tensors = [this](const ModelConfig&) { return kept_tensors(); };
}

void OpenedModel::find_layers() {
  try {
    if (!settings_.blocks.empty())
      for (const dstrain::Node& pattern : read_value(settings_.blocks, Source::file).items)
        facts_.blocks.push_back(pattern.text);
    const std::vector<GraphLayer> layers = program_layers(
        trained_part(*folded({.batch = family_.any_batch()}), facts_).graph, facts_.blocks);
    family_.layers_key = add_size(
        "layers", std::ranges::count_if(layers, [](const GraphLayer& l) { return l.number >= 0; }));
  } catch (const UserError& e) {
    fail_user("{}: {}", model_.archive.path(), e.what());
  }
  int64_t width = 1;
  for (const GraphInput& input : model_.graph.inputs)
    if (input.kind == InputKind::parameter)
      for (const Size& size : model_.graph.tensor(input.tensor).sizes)
        width = std::max(width, std::min<int64_t>(size.value(), 1 << 14));
  family_.width_key = add_size("width", width);
}

void OpenedModel::find_metrics() {
  const std::shared_ptr<const FoldedGraph> graph = folded({.batch = family_.any_batch()});
  facts_.loss_weight = settings_.loss_weight;
  try {
    if (const TensorRef weight = weight_output(graph->graph, facts_)) {
      const InputFunction function(*graph, weight, facts_.unshifted);
      for (const std::string& input : function.inputs())
        if (facts_.role_of(input) == InputRole::labels) facts_.counts_labels = true;
      family_.weigh = [this](std::span<const InputTensor> inputs) { return weigh(inputs); };
    }
  } catch (const UserError& e) {
    fail_user("{}: dstrain.model.loss_weight {}: {}", model_.archive.path(), settings_.loss_weight,
              e.what());
  }
  std::vector<LostMetric> lost;
  try {
    metric_outputs(graph->graph, facts_, &lost);
  } catch (const UserError& e) {
    fail_user("{}: {}", model_.archive.path(), e.what());
  }
  for (const LostMetric& metric : lost)
    family_.warnings.push_back(fmt::format("output {} is no metric of the run: {} is not supported",
                                           metric.name, metric.reason));
}

int64_t OpenedModel::weigh(std::span<const InputTensor> inputs) const {
  Form form{.batch = inputs[0].tensor.shape[0]};
  for (const InputTensor& input : inputs) {
    form.documents =
        form.documents || input.role == InputRole::documents || input.role == InputRole::positions;
    form.padding = form.padding || input.role == InputRole::mask;
  }
  const std::shared_ptr<const FoldedGraph> graph = folded(form);
  const InputFunction* function = nullptr;
  {
    const std::lock_guard lock(mutex_);
    function =
        &weights_.try_emplace(form, *graph, weight_output(graph->graph, facts_), facts_.unshifted)
             .first->second;
  }
  const double weight = function->value(inputs);
  if (!(weight >= 0 && weight < 0x1p53) || weight != std::floor(weight))
    fail_run(
        "dstrain.model.loss_weight: the output {} of {} is {} in a micro-batch: expected a "
        "count, a whole number from 0",
        settings_.loss_weight, model_.archive.path(), weight);
  return static_cast<int64_t>(weight);
}

void OpenedModel::check_prefix() const {
  const std::string& prefix = settings_.strip_prefix;
  if (prefix.empty()) return;
  std::set<std::string> names;
  bool found = false;
  for (const StoredTensor& tensor : model_.tensors) {
    found = found || tensor.name.starts_with(prefix);
    if (!names.insert(own_name(tensor.name)).second)
      fail_user("{}: dstrain.model.strip_prefix \"{}\": two tensors would be called {}",
                model_.archive.path(), prefix, own_name(tensor.name));
  }
  if (!found)
    fail_user(
        "{}: dstrain.model.strip_prefix \"{}\": no tensor has a name that begins so: the "
        "first one is {}",
        model_.archive.path(), prefix,
        model_.tensors.empty() ? "none" : model_.tensors.front().name);
}

std::string OpenedModel::own_name(const std::string& name) const {
  const std::string& prefix = settings_.strip_prefix;
  const bool longer = name.size() > prefix.size() && name.starts_with(prefix);
  return longer ? name.substr(prefix.size()) : name;
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
      facts_.is_one_sample = true;
    if (batch.is_fixed()) family_.batch = batch.value();
  }
  if (!facts_.is_one_sample) return;
  for (const GraphInput* input : inputs)
    if (!graph.tensor(input->tensor).sizes[0].is_fixed())
      fail_user(
          "{}: the first dimension of some inputs varies, and others have {} and more: expected "
          "samples first in all, or the same shapes always",
          model_.archive.path(), family_.batch);
  family_.batch = 1;
}

std::string_view OpenedModel::add_size(std::string_view name, int64_t value) {
  const std::string& path = texts_.emplace_back(model_path(name));
  const std::string& text = texts_.emplace_back(std::to_string(value));
  family_.keys.push_back({{.key = path, .type = Type::integer, .fallback = text}});
  return family_.keys.back().name();
}

void OpenedModel::find_inputs(GivenData data) {
  for (const FedInput& fed : feed_inputs(model_, data, settings_.inputs)) add_input(fed);
}

void OpenedModel::add_input(const FedInput& fed) {
  const Graph& graph = model_.graph;
  const TensorInfo& tensor = graph.tensor(fed.input->tensor);
  const bool is_array = fed.role == InputRole::array;
  facts_.roles[fed.input->name] = fed.role;
  if (fed.unshifted) facts_.unshifted = fed.input->name;
  ModelInput& input = family_.inputs.emplace_back();
  input.name = texts_.emplace_back(fed.input->name);
  input.role = fed.role;
  input.dtype = is_array && is_floating(tensor.type) ? DType::f32 : DType::i32;
  if (is_array) {
    for (size_t d = facts_.is_one_sample ? 0 : 1; d < tensor.sizes.size(); ++d)
      input.sizes.push_back(tensor.sizes[d].value());
    if (facts_.is_one_sample) input.whole = input.sizes;
    return;
  }
  input.shape = {kContext};
  if (fed.role == InputRole::token_ids || fed.role == InputRole::labels)
    input.classes = kVocabulary;
  if (fed.role != InputRole::token_ids) return;
  add_size(kContext, tensor.sizes[1].value());
  add_size(kVocabulary, rows_of_table(graph, *fed.input));
}

void OpenedModel::find_parameters() {
  // Statistics of batch norm are state that steps change.
  for (const Node& node : model_.graph.nodes) {
    if (node.target != "aten._native_batch_norm_legit_functional.default") continue;
    for (const char* const argument : {"running_mean", "running_var"})
      for (const GraphInput& input : model_.graph.inputs)
        if (input.kind == InputKind::buffer && input.tensor == node.tensor(argument))
          facts_.running.emplace(input.name, RunningFacts{.name = own_name(input.name)});
  }
  for (const GraphInput& input : model_.graph.inputs) {
    if (input.kind != InputKind::parameter) continue;
    ParameterFacts facts = like_values(model_, *model_.find(input.name));
    facts.name = own_name(first_name(input.name));
    facts_.parameters.emplace(input.name, std::move(facts));
  }
}

SymbolValues OpenedModel::symbols(int64_t batch) const {
  std::vector<InputSizes> inputs;
  for (const GraphInput* input : user_inputs(model_.graph)) {
    const TensorInfo& tensor = model_.graph.tensor(input->tensor);
    InputSizes sizes{input->name, {facts_.is_one_sample ? tensor.sizes[0].value() : batch}};
    for (size_t d = 1; d < tensor.sizes.size(); ++d) sizes.sizes.push_back(tensor.sizes[d].value());
    inputs.push_back(std::move(sizes));
  }
  return solve_symbols(model_.graph, inputs);
}

std::shared_ptr<const FoldedGraph> OpenedModel::folded(const Form& form) const {
  const std::lock_guard lock(mutex_);
  std::shared_ptr<const FoldedGraph>& known = folded_[form];
  if (known) return known;
  const ForwardOptions options{.documents = form.documents, .padding = form.padding};
  FoldOptions fixed;
  for (const ModelInput& input : family_.inputs)
    if (!options.has(input.role))
      fixed.inputs[std::string(input.name)] = usual_elements(
          input.role, form.batch, ModelConfig(family_).integer(family_.context_key()));
  known = std::make_shared<const FoldedGraph>(
      fold(model_, with_sizes(model_.graph, symbols(form.batch)), fixed));
  return known;
}

void OpenedModel::build(Builder& builder) const {
  try {
    const ForwardOptions& options = builder.options();
    const std::shared_ptr<const FoldedGraph> graph = folded(
        {.batch = options.batch, .documents = options.documents, .padding = options.padding});
    lower_graph(builder, *graph, facts_);
  } catch (const UserError& e) {
    fail_user("{}: {}", model_.archive.path(), e.what());
  }
}

std::vector<const StoredTensor*> OpenedModel::read_weights() const {
  // What only tensors without elements are computed from, say, is no weight of the program.
  const FoldedGraph trained = trained_part(*folded({.batch = family_.any_batch()}), facts_);
  std::set<int32_t> read;
  for (const Node& node : trained.graph.nodes)
    for_each_operand(node, [&read](TensorRef ref) { read.insert(ref.id); });
  std::vector<const StoredTensor*> parameters;
  for (const GraphInput& input : model_.graph.inputs) {
    if (input.kind != InputKind::parameter || !read.contains(input.tensor.id)) continue;
    const StoredTensor* const tensor = model_.find(first_name(input.name));
    if (std::ranges::find(parameters, tensor) == parameters.end()) parameters.push_back(tensor);
  }
  for (const auto& [name, facts] : facts_.running) parameters.push_back(model_.find(name));
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
    names.tensors.push_back({.name = own_name(tensor->name),
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
    kept.push_back({.name = own_name(tensor.name),
                    .dtype = safetensors_name(tensor.type),
                    .shape = tensor.sizes,
                    .bytes = read_elements(model_.archive, tensor)});
  }
  return kept;
}

}  // namespace dstrain::exported
