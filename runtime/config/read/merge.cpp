#include "runtime/config/read/merge.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/keys/table/model_registry.h"
#include "runtime/config/read/model_source.h"
#include "runtime/config/read/resolved_source.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"

namespace dstrain {
namespace {

constexpr SourcePlace kCommandLine{Source::command_line, 0, 0};

Node node_of(std::string text, SourcePlace place) {
  Node node;
  node.kind = Node::Kind::string;
  node.text = std::move(text);
  node.place = place;
  return node;
}

Node node_of(int64_t value, SourcePlace place) {
  Node node;
  node.kind = Node::Kind::integer;
  node.integer = value;
  node.real = static_cast<double>(value);
  node.place = place;
  return node;
}

void put_or_fail(Node& root, std::string_view option, std::string_view path, Node value) {
  if (!put(root, path, std::move(value)))
    fail_user("{}: a key above {} is not a section {{ }}", option, path);
}

// Puts the value of a command line option at `path`, if it is given.
template <class Value>
void put_option(Node& root, std::string_view option, std::string_view path,
                const std::optional<Value>& value) {
  if (value) put_or_fail(root, option, path, node_of(*value, kCommandLine));
}

// Removes every member at the dotted `path`: a file may have a key, or a section above it, twice.
void erase(Node& root, std::string_view path) {
  const size_t dot = path.find('.');
  const std::string_view key = path.substr(0, dot);
  if (dot == std::string_view::npos) {
    std::erase_if(root.members, [key](const Member& m) { return m.key == key; });
    return;
  }
  for (Member& m : root.members)
    if (m.key == key) erase(m.value, path.substr(dot + 1));
}

// Writes "zero_optimization": true, an old form, as the section that it stands for.
void write_out_stage(Node& root) {
  for (Member& m : root.members) {
    if (m.key != "zero_optimization" || !m.value.is(Node::Kind::boolean)) continue;
    Node stage = node_of(m.value.boolean ? 1 : 0, m.place);
    m.value.kind = Node::Kind::object;
    m.value.members.push_back({"stage", m.place, std::move(stage), {}});
  }
}

std::map<std::string, Ignored> ignored_keys(const ConfigRequest& request, const Node& root) {
  constexpr std::string_view own_key = "dstrain.ignore";
  std::map<std::string, Ignored> keys;
  if (const Member* list = find(root, own_key))
    for (const Node& key : list->value.items)
      if (key.is(Node::Kind::string))
        keys.emplace(key.text, Ignored{std::string(own_key), key.place});
  for (const std::string& key : request.ignored)
    keys.emplace(key, Ignored{"--ignore " + printable(key), kCommandLine});
  return keys;
}

// Returns the value of --set. Text that does not begin like a JSON value is a string: --set optimizer.type=SGD.
Node set_value(const std::string& set, std::string text) {
  const SourcePlace place{Source::set, 0, 0};
  try {
    Node node = read_value(text, Source::set);
    node.place = place;
    return node;
  } catch (const SyntaxError& e) {
    const bool meant_as_json = text.empty() || text.find_first_of("[{\"'") == 0 ||
                               first_invalid_utf8(text) != std::string_view::npos;
    if (meant_as_json) fail_user("--set {}: {}", printable(set), e.what());
    return node_of(std::move(text), place);
  }
}

void apply_set(Node& root, const std::string& set) {
  const size_t equals = set.find('=');
  const std::string path = set.substr(0, equals);
  if (equals == std::string::npos || path.empty() || ("." + path + ".").find("..") != path.npos)
    fail_user("--set {}: expected path.to.key=value", printable(set));
  if (path.size() > 200)
    fail_user("--set {}: the key is longer than 200 characters", printable(set));
  if (path.starts_with("zero_optimization.")) write_out_stage(root);
  put_or_fail(root, "--set", path, set_value(set, set.substr(equals + 1)));
}

// Replaces both keys of the file that set recompute.
void apply_recompute(Node& root, const std::string& text) {
  constexpr std::string_view option = "--activation_checkpoint_interval";
  constexpr std::string_view interval_key = "pipeline.activation_checkpoint_interval";
  const bool number = is_json_number(text);
  Node value = number ? read_value(text, Source::command_line) : node_of(text, kCommandLine);
  value.place = kCommandLine;
  if (find(root, interval_key))
    put_or_fail(root, option, interval_key, number ? value : node_of(0, kCommandLine));
  put_or_fail(root, option, "dstrain.recompute", std::move(value));
}

// Replaces the section of the model by the one that `name` names.
void apply_model(Merged& merged, const std::string& name, std::string_view option,
                 SourcePlace place, const ModelRegistry& models) {
  ModelSource source = read_model(name, option, place, models);
  merged.directory_model = source.directory.empty() ? Node() : source.section;
  put_or_fail(merged.root, "--model", kModelSectionName, std::move(source.section));
  merged.names.model_file = std::move(source.file);
  merged.model_text = std::move(source.text);
  merged.model_directory = std::move(source.directory);
  merged.model_has_namesake = source.has_namesake;
  merged.folder_of_weights = std::move(source.folder_of_weights);
}

// Replaces the tree of a resolved configuration by what its run was given. The model of a folder is read there again.
void take_resolved(Merged& merged, const ConfigRequest& request) {
  ResolvedSource source = read_resolved(merged.root, request.path);
  merged.root = std::move(source.root);
  if (source.model_directory.empty() || request.model) return;
  const std::string file = fmt::format("{}/{}", source.model_directory, kConfigJson);
  std::error_code none;
  if (!std::filesystem::exists(file, none))
    fail_user(
        "{}: the model of the run was in {}, and there is no {} now: --model names where it is",
        request.path, printable(source.model_directory), printable(file));
  // A folder may have the name of a type, which a model is first.
  const std::string name = request.models->find(source.model_directory)
                               ? "./" + source.model_directory
                               : source.model_directory;
  apply_model(merged, name, "", {Source::file, 0, 0}, *request.models);
  for (auto& [key, value] : source.model_sets) put_or_fail(merged.root, "--set", key, value);
}

// Returns the family of transformers' models that a section names, by our name of the type or by config.json's; null: none.
const ModelFamily* hugging_face_family(const Node& section, const ModelRegistry& models) {
  const Member* const own = section.member("type");
  const Member* const type = own ? own : section.member("model_type");
  const ModelFamily* const family = type ? models.find(lower_case(type->value.text)) : nullptr;
  return family && family->hugging_face ? family : nullptr;
}

// Returns the texts of a list; none if there is no list.
std::vector<std::string> texts_of(const Member* list) {
  std::vector<std::string> texts;
  if (list)
    for (const Node& item : list->value.items) texts.push_back(item.text);
  return texts;
}

// Gives the model of a folder the ids of its tokenizer where that has more, and no option says how many there are. Adapters
// alone train no rows of new ids: with them there are new ones only where tokens are added, or modules trained as a whole.
void grow_vocabulary(Merged& merged, const ConfigRequest& request) {
  const ModelFamily* const family = hugging_face_family(merged.directory_model, *request.models);
  if (!family || !request.count_ids) return;
  const std::string key = model_path(family->vocabulary_key());
  const Member* const given = find(merged.root, key);
  const std::vector<std::string> added = texts_of(find(merged.root, kAddedTokens));
  if (given && given->place.source != Source::model_file) return;
  if (added.empty() && find(merged.root, "dstrain.lora") &&
      !find(merged.root, "dstrain.lora.modules_to_save"))
    return;
  const int64_t ids = request.count_ids(merged.model_directory, added);
  const int64_t own =
      given ? to_integer(given->value).value_or(ids) : ModelConfig(*family).vocabulary();
  if (ids > own) put_or_fail(merged.root, "--model", key, node_of(ids, {Source::tokenizer, 0, 0}));
}

}  // namespace

std::string where(const SourceNames& names, const SourcePlace& place, std::string_view key) {
  if (place.source == Source::set) return "--set";
  if (place.source == Source::tokenizer) return "derived: the ids of the tokenizer";
  if (place.source == Source::command_line) {
    if (key.substr(0, 13) == "dstrain.model") return "--model";
    if (key == "dstrain.data.path") return "--data";
    if (key == "dstrain.data.vocab") return "--vocab";
    if (key == "pipeline.stages") return "--pipeline_num_stages";
    if (key == "pipeline.schedule") return "--pipeline_schedule";
    if (key == "tensor_parallel.autotp_size") return "--tensor_parallel_size";
    if (key == "dstrain.recompute") return "--activation_checkpoint_interval";
    return fmt::format("--{}", key.substr(key.rfind('.') + 1));
  }
  return fmt::format("{}:{}:{}", place.source == Source::file ? names.file : names.model_file,
                     place.line, place.column);
}

bool put(Node& root, std::string_view path, Node value) {
  const size_t dot = path.find('.');
  const std::string_view key = path.substr(0, dot);
  if (!root.is(Node::Kind::object)) {
    if (!root.is(Node::Kind::null)) return false;
    root.kind = Node::Kind::object;
  }
  // A key that the file has twice has one value then.
  if (dot == std::string_view::npos && std::ranges::count(root.members, key, &Member::key) > 1)
    std::erase_if(root.members, [key](const Member& m) { return m.key == key; });
  Member* member = nullptr;
  for (Member& m : root.members)
    if (m.key == key) member = &m;
  if (!member) {
    root.members.push_back({std::string(key), value.place, {}, {}});
    member = &root.members.back();
  }
  if (dot != std::string_view::npos)
    return put(member->value, path.substr(dot + 1), std::move(value));
  member->place = value.place;
  member->value = std::move(value);
  return true;
}

Merged merge(const ConfigRequest& request) {
  Merged merged;
  merged.names.file = request.path;
  Node& root = merged.root;
  root.kind = Node::Kind::object;
  if (!request.path.empty())
    root = read_config(read_input_file(request.path, "the configuration", kMaxConfigBytes),
                       Source::file);
  if (is_resolved(root)) take_resolved(merged, request);
  merged.models = request.models;
  if (request.model) {
    apply_model(merged, *request.model, "--model ", kCommandLine, *request.models);
  } else if (const Member* m = find(root, kModelSectionName);
             m && m->value.is(Node::Kind::string) && !m->value.is_auto()) {
    const std::string name = m->value.text;
    try {
      apply_model(merged, name, "", m->value.place, *request.models);
    } catch (const UserError& e) {
      merged.model_error = e.what();
    }
  }
  for (const std::string& set : request.sets) apply_set(root, set);
  grow_vocabulary(merged, request);
  put_option(root, "--data", "dstrain.data.path", request.data);
  put_option(root, "--vocab", "dstrain.data.vocab", request.vocab);
  put_option(root, "--steps", "dstrain.steps", request.steps);
  put_option(root, "--seed", "dstrain.seed", request.seed);
  put_option(root, "--save_interval", "dstrain.save_interval", request.save_interval);
  put_option(root, "--device_memory", "dstrain.device_memory", request.device_memory);
  if (request.recompute) apply_recompute(root, *request.recompute);
  put_option(root, "--pipeline_num_stages", "pipeline.stages", request.pipeline_stages);
  put_option(root, "--pipeline_schedule", "pipeline.schedule", request.pipeline_schedule);
  put_option(root, "--tensor_parallel_size", "tensor_parallel.autotp_size",
             request.tensor_parallel);
  put_option(root, "--sequence_parallel_size", "sequence_parallel_size", request.sequence_parallel);
  merged.ignored = ignored_keys(request, root);
  // What is ignored is the file's value, and an option has replaced that already.
  std::erase_if(merged.ignored, [&root](const auto& ignored) {
    const Member* const m = find(root, ignored.first);
    return m && !m->value.is(Node::Kind::object) && m->value.place.source == Source::command_line;
  });
  return merged;
}

Node without_ignored(const Merged& merged) {
  Node root = merged.root;
  for (const auto& [key, by] : merged.ignored) erase(root, key);
  return root;
}

Node canonical(const Merged& merged) {
  const Node root = without_ignored(merged);
  Node result = root;
  write_out_stage(result);
  if (const Member* sharding = find(root, "dstrain.sharding");
      sharding && !find(result, "zero_optimization.stage"))
    if (const auto stage = stage_of_sharding(sharding->value.text))
      put(result, "zero_optimization.stage", node_of(*stage, sharding->place));
  if (const Member* model = find(root, kModelSectionName); model && merged.models)
    if (const ModelFamily* family = hugging_face_family(model->value, *merged.models)) {
      Node section = model->value;
      if (!section.member("type")) put(section, "type", section.member("model_type")->value);
      if (family->hugging_face->normalise) family->hugging_face->normalise(section);
      put(result, kModelSectionName, std::move(section));
    }
  for (const KeySpec& spec : common_keys()) {
    if (spec.alias.empty() || spec.type == Type::section) continue;
    const Member* old = find(root, spec.key);
    if (!old || find(root, spec.alias)) continue;
    if (spec.alias.find("offload_") == std::string_view::npos)
      put(result, spec.alias, old->value);
    else if (to_boolean(old->value).value_or(false))
      put(result, std::string(spec.alias) + ".device", node_of("cpu", old->place));
  }
  return result;
}

}  // namespace dstrain
