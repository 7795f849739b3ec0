#include "runtime/config/read/resolved_source.h"

#include <filesystem>
#include <string_view>
#include <system_error>

#include "runtime/config/json/reader.h"
#include "runtime/config/read/merge.h"
#include "runtime/config/read/run_folder.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"

namespace dstrain {
namespace {

constexpr std::string_view kRunPrefix = "run.";

std::string text_of(const Node* node) {
  return node && node->is(Node::Kind::string) ? node->text : "";
}

// Returns whether a value followed from others, from the data or from the machine, and does so again. The steps of a run of
// --epochs stay what they were.
bool follows(std::string_view origin) {
  return origin == "default" ||
         (origin.starts_with("derived:") && !origin.starts_with("derived: --epochs"));
}

// Takes one of the values that are named run.*, which were options.
void take_option(ResolvedSource& source, std::string_view name, const Node& value,
                 std::string_view origin) {
  if (name == "ignored")
    for (const Node& key : value.items) source.ignored.push_back(key.text);
  else if (name == "device" && origin == "--device")
    source.device = value.text;
  else if (name == "init_weights" && origin == "--init_weights")
    source.init_weights = value.text;
  else if (name == "ranks" && origin == "--num_gpus")
    source.ranks = value.integer;
}

// Returns the text that a value of the run has; nothing if it has none.
std::optional<std::string> recorded(const Node& values, std::string_view key) {
  const Member* const entry = values.member(key);
  const Member* const value = entry ? entry->value.member("value") : nullptr;
  return value ? std::optional(text_of(&value->value)) : std::nullopt;
}

// Returns the first weights of the run whose values these are. Those of a run that was resumed are recorded as such.
std::optional<std::string> base_of(const Node& values) {
  if (const std::optional<std::string> base = recorded(values, "run.base_weights")) return base;
  if (recorded(values, "run.resume").value_or("") != "") return std::nullopt;
  std::optional<std::string> first = recorded(values, "run.init_weights");
  return first == kFreshWeights ? "" : first;
}

}  // namespace

bool is_resolved(const Node& tree) {
  const Member* const values = tree.member("values");
  if (!values || tree.members.size() != 1 || values->value.members.empty()) return false;
  const Node& first = values->value.members.front().value;
  return first.member("value") != nullptr && first.member("origin") != nullptr;
}

ResolvedSource read_resolved(const Node& tree, const std::string& file) {
  ResolvedSource source;
  source.root.kind = Node::Kind::object;
  source.base_weights = base_of(tree.member("values")->value);
  source.model_directory =
      recorded(tree.member("values")->value, "run.model_directory").value_or("");
  for (const Member& m : tree.member("values")->value.members) {
    const Member* const value = m.value.member("value");
    const Member* const from = m.value.member("origin");
    const std::string origin = text_of(from ? &from->value : nullptr);
    if (!value || origin.empty())
      fail_user("{}:{}: {} has no \"value\" with its \"origin\"", file, m.place.line,
                printable(m.key));
    if (m.key.starts_with(kRunPrefix)) {
      take_option(source, m.key.substr(kRunPrefix.size()), value->value, origin);
      continue;
    }
    if (follows(origin)) continue;
    Node given = value->value;
    if (origin.starts_with("auto")) {
      given = Node();
      given.kind = Node::Kind::string;
      given.text = "auto";
      given.place = value->value.place;
    }
    if (!source.model_directory.empty() && m.key.starts_with("dstrain.model.")) {
      given.place.source = Source::set;
      if (origin == "--set") source.model_sets.emplace_back(m.key, std::move(given));
      continue;
    }
    if (!put(source.root, m.key, std::move(given)))
      fail_user("{}:{}: {} is out of place", file, m.place.line, printable(m.key));
  }
  return source;
}

std::optional<std::string> recorded_base(const std::string& run_folder) {
  const std::string file = fmt::format("{}/{}", run_folder, kResolvedConfig);
  std::error_code none;
  if (!std::filesystem::is_regular_file(file, none)) return std::nullopt;
  try {
    const Node tree =
        read_config(read_input_file(file, "the configuration", kMaxConfigBytes), Source::file);
    return is_resolved(tree) ? read_resolved(tree, file).base_weights : std::nullopt;
  } catch (const SyntaxError&) {
    return std::nullopt;
  }
}

void complete_request(ConfigRequest& request) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (request.path.empty() && request.resume) {
    const std::string file = fmt::format("{}/{}", run_folder_of(*request.resume), kResolvedConfig);
    if (!fs::exists(file, none))
      fail_user(
          "--resume {}: there is no {}, which every run writes: give the output directory of a "
          "run, or one of its checkpoints; or name the configuration with --config",
          printable(*request.resume), printable(file));
    request.path = file;
  }
  if (fs::path(request.path).filename() != kResolvedConfig ||
      !fs::is_regular_file(request.path, none))
    return;
  try {
    const Node tree = read_config(
        read_input_file(request.path, "the configuration", kMaxConfigBytes), Source::file);
    if (!is_resolved(tree)) return;
    const ResolvedSource source = read_resolved(tree, request.path);
    if (!request.device) request.device = source.device;
    if (!request.init_weights && !request.resume && !request.model)
      request.init_weights = source.init_weights;
    request.recorded_ranks = source.ranks;
    request.ignored.insert(request.ignored.end(), source.ignored.begin(), source.ignored.end());
  } catch (const SyntaxError&) {
    return;
  }
}

}  // namespace dstrain
