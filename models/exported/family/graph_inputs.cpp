#include "models/exported/family/graph_inputs.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>

#include "runtime/config/json/reader.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain::exported {
namespace {

// What texts give an input of (samples, tokens).
enum class TextKind : uint8_t { tokens, targets, labels, mask, positions, documents, images };

constexpr std::string_view kKinds = "tokens|targets|labels|mask|positions|documents|images";

// A kind, its name, what the program calls it, and the names that inputs of it usually have.
struct KindNames {
  TextKind kind;
  std::string_view name;
  InputRole role;
  std::string_view usual;
};

constexpr KindNames kNames[] = {
    {TextKind::tokens, "tokens", InputRole::token_ids, "idx|input_ids|tokens"},
    {TextKind::targets, "targets", InputRole::labels, "targets|target|tgt"},
    {TextKind::labels, "labels", InputRole::labels, "labels"},
    {TextKind::mask, "mask", InputRole::mask, "attention_mask|mask"},
    {TextKind::positions, "positions", InputRole::positions, "position_ids|positions"},
    {TextKind::documents, "documents", InputRole::documents, "documents"},
    {TextKind::images, "images", InputRole::array, ""},
};

const KindNames& names_of(TextKind kind) {
  return kNames[static_cast<size_t>(kind)];
}

std::optional<TextKind> kind_named(std::string_view name) {
  for (const KindNames& names : kNames)
    if (names.name == name) return names.kind;
  return std::nullopt;
}

using Kinds = std::map<std::string, TextKind, std::less<>>;  // by the names of inputs

Kinds chosen_kinds(const std::string& chosen) {
  Kinds kinds;
  if (chosen.empty()) return kinds;
  for (const Member& m : read_value(chosen, Source::file).members)
    kinds[m.key] = kind_named(m.value.text).value();
  return kinds;
}

bool is_sequence(const TensorInfo& tensor, TextKind kind) {
  return kind != TextKind::images && tensor.sizes.size() == 2 &&
         (!is_floating(tensor.type) || kind == TextKind::mask);
}

bool is_of_images(const TensorInfo& tensor, TextKind kind) {
  return (kind == TextKind::images && tensor.sizes.size() == 4 && is_floating(tensor.type)) ||
         (kind == TextKind::labels && tensor.sizes.size() == 1 && !is_floating(tensor.type));
}

class Feeding {
 public:
  Feeding(const ExportedModel& model, const std::string& chosen, bool images)
      : model_(model), chosen_(chosen_kinds(chosen)), images_(images) {
    for (const auto& [name, kind] : chosen_) check_choice(name, kind);
    for (const GraphInput* input : user_inputs(model.graph)) {
      const std::optional<TextKind> kind = kind_of(*input);
      kinds_.push_back(kind);
      if (!kind) others_.push_back(input->name);
    }
  }

  // Whether texts give all inputs, and among them tokens and what they are to predict.
  bool is_of_texts() const {
    return others_.empty() && has(InputRole::token_ids) && has(InputRole::labels);
  }

  std::vector<FedInput> of_texts() const {
    if (!others_.empty())
      fail(
          "texts do not give the inputs {}: say what they are by dstrain.model.inputs, "
          "{{\"NAME\": \"KIND\"}}, where each is (batch, tokens) and its kind one of {}; data of "
          "arrays give any inputs: --set dstrain.data.format=arrays",
          fmt::join(others_, ", "), fmt::join(split_words(kKinds), ", "));
    if (!is_of_texts())
      fail(
          "texts give an input of token ids and one of targets, and the graph has {}: export a "
          "module whose forward() takes both, or say which input is which by "
          "dstrain.model.inputs, {{\"NAME\": \"tokens\", \"NAME\": \"targets\"}}",
          has(InputRole::token_ids) ? "no targets" : "no token ids");
    std::vector<FedInput> fed;
    std::map<InputRole, std::string> known;
    std::optional<Size> tokens;
    const std::vector<const GraphInput*> inputs = user_inputs(model_.graph);
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TextKind kind = *kinds_[i];
      const InputRole role = names_of(kind).role;
      const Size& length = model_.graph.tensor(inputs[i]->tensor).sizes[1];
      if (const auto [other, is_new] = known.emplace(role, inputs[i]->name); !is_new)
        fail("the inputs {} and {} are both {}: texts give one of a kind", other->second,
             inputs[i]->name, dstrain::name_of(role));
      if (tokens && tokens->value() != length.value())
        fail("input {} has {} tokens, and another one has {}: texts give samples of one length",
             inputs[i]->name, length.value(), tokens->value());
      tokens = length;
      fed.push_back({inputs[i], role, kind == TextKind::labels});
    }
    return fed;
  }

  std::vector<FedInput> of_arrays() const {
    std::vector<FedInput> fed;
    for (const GraphInput* input : user_inputs(model_.graph)) fed.push_back({.input = input});
    return fed;
  }

 private:
  template <class... Args>
  [[noreturn]] void fail(fmt::format_string<Args...> format, Args&&... args) const {
    fail_user("{}: {}", model_.archive.path(), fmt::format(format, std::forward<Args>(args)...));
  }

  void check_choice(const std::string& name, TextKind kind) const {
    std::vector<std::string> names;
    for (const GraphInput* input : user_inputs(model_.graph)) {
      names.push_back(input->name);
      if (input->name != name) continue;
      const TensorInfo& tensor = model_.graph.tensor(input->tensor);
      if (images_ ? is_of_images(tensor, kind) : is_sequence(tensor, kind)) return;
      fail("dstrain.model.inputs says that input {} is {}, and it is {} {}: expected {}", name,
           names_of(kind).name, exported::name_of(tensor.type), to_string(tensor.sizes),
           expected(kind));
    }
    fail("dstrain.model.inputs names {}, and the inputs of the graph are {}", printable(name),
         fmt::join(names, ", "));
  }

  // Returns what an input is that has a kind.
  std::string_view expected(TextKind kind) const {
    if (images_)
      return kind == TextKind::images   ? "fractions of (batch, channels, height, width)"
             : kind == TextKind::labels ? "integers of (batch)"
                                        : "images or labels, as the data are images";
    return kind == TextKind::images ? "another kind, as the data are texts"
           : kind == TextKind::mask ? "numbers of (batch, tokens)"
                                    : "integers of (batch, tokens)";
  }

  std::optional<TextKind> kind_of(const GraphInput& input) const {
    if (const auto chosen = chosen_.find(input.name); chosen != chosen_.end())
      return chosen->second;
    const TensorInfo& tensor = model_.graph.tensor(input.tensor);
    for (const KindNames& names : kNames)
      if (one_of(names.usual, input.name) && is_sequence(tensor, names.kind)) return names.kind;
    return std::nullopt;
  }

  bool has(InputRole role) const {
    return std::ranges::any_of(kinds_, [role](const std::optional<TextKind>& kind) {
      return kind && names_of(*kind).role == role;
    });
  }

  const ExportedModel& model_;
  Kinds chosen_;
  bool images_;                                 // the data are images
  std::vector<std::optional<TextKind>> kinds_;  // of each input of the user
  std::vector<std::string> others_;             // that texts do not give
};

}  // namespace

std::vector<const GraphInput*> user_inputs(const Graph& graph) {
  std::vector<const GraphInput*> inputs;
  for (const GraphInput& input : graph.inputs)
    if (input.kind == InputKind::user) inputs.push_back(&input);
  return inputs;
}

std::string inputs_problem(const dstrain::Node& value) {
  const std::string expected = fmt::format(
      "expected an object such as {{\"x\": \"tokens\", \"y\": \"targets\"}}, whose values are {}",
      fmt::join(split_words(kKinds), ", "));
  if (!value.is(dstrain::Node::Kind::object) || value.members.empty())
    return fmt::format("{}; found {}", expected, printable(json_text(value)));
  for (const Member& m : value.members) {
    if (!m.value.is(dstrain::Node::Kind::string) || !kind_named(m.value.text)) {
      const std::string near = nearest(m.value.text, split_words(kKinds));
      return fmt::format("{}; input {} is {}{}", expected, printable(m.key),
                         printable(json_text(m.value)),
                         near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near));
    }
    if (m.first.line > 0) return fmt::format("input {} is given twice", printable(m.key));
  }
  return "";
}

std::vector<FedInput> feed_inputs(const ExportedModel& model, GivenData data,
                                  const std::string& chosen) {
  const Feeding feeding(model, chosen, data == GivenData::images);
  const bool arrays = data == GivenData::arrays || data == GivenData::images ||
                      (data == GivenData::unknown && chosen.empty() && !feeding.is_of_texts());
  return arrays ? feeding.of_arrays() : feeding.of_texts();
}

std::vector<int64_t> usual_elements(InputRole role, int64_t samples, int64_t tokens) {
  std::vector<int64_t> elements(static_cast<size_t>(samples * tokens),
                                role == InputRole::mask ? 1 : 0);
  if (role == InputRole::positions)
    for (size_t i = 0; i < elements.size(); ++i) elements[i] = static_cast<int64_t>(i) % tokens;
  return elements;
}

}  // namespace dstrain::exported
