#include "models/exported/read/read_signature.h"

#include <utility>

#include "models/exported/read/read_graph.h"
#include "runtime/core/formats/shown_text.h"

namespace dstrain::exported {
namespace {

// The names of the tensors in what a module returns: "loss", "0", "states.1".
class OutputNames {
 public:
  explicit OutputNames(const JsonField& module) : module_(module) {
    const JsonField calls = module["module_call_graph"];
    for (size_t i = 0; i < calls.items(); ++i) {
      const std::optional<JsonField> signature = calls.at(i).find("signature");
      if (!calls.at(i)["fqn"].text().empty() || !signature) continue;
      const JsonField spec = (*signature)["out_spec"];
      const JsonDocument document =
          read_json(spec.text(), "the member out_spec of " + module.file());
      walk(JsonField(document).at(1), "");
      return;
    }
  }

  // Returns the name of an output of `count`: empty if it is the only one, its number where the module does not name as many.
  std::string name_of(size_t output, size_t count) const {
    if (names_.size() == count) return names_[output];
    return count == 1 ? "" : fmt::format("{}", output);
  }

 private:
  void walk(const JsonField& spec, const std::string& path) {
    const JsonField children = spec["children_spec"];
    if (!spec.find("type")) {
      names_.push_back(path);
      return;
    }
    const std::vector<std::string> keys = keys_of(spec);
    for (size_t i = 0; i < children.items(); ++i) {
      const std::string key = keys.size() == children.items() ? keys[i] : fmt::format("{}", i);
      walk(children.at(i), path.empty() ? key : fmt::format("{}.{}", path, key));
    }
  }

  // Returns the names of the parts: a dictionary's keys, a named tuple's fields; empty if they have none.
  std::vector<std::string> keys_of(const JsonField& spec) const {
    std::vector<std::string> keys;
    const std::optional<JsonField> context = spec.find("context");
    if (!context || !context->is_text()) return keys;
    if (spec["type"].text() == "collections.namedtuple") {
      const auto fields = module_["treespec_namedtuple_fields"].find(context->text().c_str());
      if (fields) add_texts((*fields)["field_names"], keys);
    } else if (context->text().starts_with('[')) {
      const JsonDocument list =
          read_json(context->text(), "the member context of " + module_.file());
      add_texts(JsonField(list), keys);
    }
    return keys;
  }

  static void add_texts(const JsonField& list, std::vector<std::string>& texts) {
    for (size_t i = 0; i < list.items(); ++i)
      texts.push_back(list.at(i).is_text() ? list.at(i).name() : fmt::format("{}", i));
  }

  const JsonField& module_;
  std::vector<std::string> names_;
};

// The one member of an entry of the signature, whose key says what it is.
std::pair<std::string, JsonField> entry_of(const JsonField& field) {
  std::optional<std::pair<std::string, JsonField>> entry;
  field.for_each_member([&](const std::string& key, const JsonField& value) {
    if (entry) field.fail("has several members, expected one");
    entry.emplace(key, value);
  });
  if (!entry) field.fail("is empty");
  return *entry;
}

}  // namespace

std::vector<GraphInput> read_inputs(const JsonField& module, const NamedValues& values) {
  const JsonField specs = module["signature"]["input_specs"];
  std::vector<GraphInput> inputs;
  for (size_t i = 0; i < specs.items(); ++i) {
    const auto [kind, spec] = entry_of(specs.at(i));
    GraphInput input;
    if (kind == "parameter") {
      input = {InputKind::parameter, values.tensor(spec["arg"]), spec["parameter_name"].name(),
               true};
    } else if (kind == "buffer") {
      input = {InputKind::buffer, values.tensor(spec["arg"]), spec["buffer_name"].name(),
               spec["persistent"].flag()};
    } else if (kind == "tensor_constant") {
      input = {InputKind::constant, values.tensor(spec["arg"]), spec["tensor_constant_name"].name(),
               false};
    } else if (kind == "constant_input") {
      continue;
    } else if (kind == "user_input") {
      if (NamedValues::is_symbolic(spec["arg"]))
        spec.fail(
            "is a number that the graph is given, expected tensors: export the model with a fixed "
            "number");
      const Argument argument = values.argument(spec["arg"]);
      const TensorRef* tensor = std::get_if<TensorRef>(&argument);
      if (!tensor || !*tensor) continue;
      input = {InputKind::user, *tensor, values.tensors()[static_cast<size_t>(tensor->id)].name,
               false};
    } else {
      spec.fail(
          "is an input of the kind \"{}\", expected parameters, buffers, constants and tensors",
          shown_text(kind));
    }
    inputs.push_back(std::move(input));
  }
  return inputs;
}

std::vector<GraphOutput> read_outputs(const JsonField& module, const NamedValues& values) {
  const JsonField specs = module["signature"]["output_specs"];
  std::vector<GraphOutput> outputs;
  std::vector<std::pair<TensorRef, size_t>> users;  // and their places among the user's outputs
  size_t count = 0;
  for (size_t i = 0; i < specs.items(); ++i) {
    const auto [kind, spec] = entry_of(specs.at(i));
    if (kind == "buffer_mutation") {
      outputs.push_back(
          {OutputKind::buffer, values.tensor(spec["arg"]), spec["buffer_name"].name()});
    } else if (kind == "loss_output") {
      users.emplace_back(values.tensor(spec["arg"]), count++);
    } else if (kind == "user_output") {
      const JsonField argument = spec["arg"];
      ++count;
      if (NamedValues::is_symbolic(argument)) continue;
      const Argument value = values.argument(argument);
      if (const auto* tensor = std::get_if<TensorRef>(&value); tensor && *tensor)
        users.emplace_back(*tensor, count - 1);
    } else {
      spec.fail(
          "is an output of the kind \"{}\", expected the user's and new values of buffers: {}",
          shown_text(kind), kExportAdvice);
    }
  }
  const OutputNames names(module);
  for (const auto& [tensor, place] : users) {
    std::string name = names.name_of(place, count);
    if (name.empty()) name = values.tensors()[static_cast<size_t>(tensor.id)].name;
    outputs.push_back({OutputKind::user, tensor, std::move(name)});
  }
  return outputs;
}

}  // namespace dstrain::exported
