#include "runtime/config/report/resolved_config.h"

#include <fmt/core.h>

#include "runtime/config/family/family.h"
#include "runtime/config/json/reader.h"
#include "runtime/config/read/merge.h"
#include "runtime/config/solve/solve.h"
#include "runtime/core/error.h"

namespace dstrain {

std::string resolved_config_json(const LoadedConfig& loaded) {
  LoadedConfig settled = loaded;
  const Job& job = loaded.job;
  settled.settle("run.device", json_text(name_of(job.device)), "this machine");
  const int64_t ids = job.model.family().is_fixed ? 0 : job.model.vocabulary();
  if (ids > 0)
    settled.settle(model_path(job.model.family().vocabulary_key()), std::to_string(ids),
                   "the data");
  const Settings& settings = settled.settings;
  std::string text = "{\n \"values\": {";
  for (const Setting& s : settings)
    text += fmt::format("{}\n  {}: {{\"value\": {}, \"origin\": {}}}",
                        &s == settings.data() ? "" : ",", json_text(std::string_view(s.key)),
                        s.value, json_text(std::string_view(s.origin)));
  return fmt::format("{}\n }}\n}}\n", text);
}

Job job_from_resolved(const std::string& text, const ModelRegistry& models,
                      const std::string& source) {
  ConfigRequest request;
  request.models = &models;
  request.path = source;
  request.base_weights.emplace();  // unknown, unless the file says
  Merged merged;
  merged.names.file = source;
  merged.models = &models;
  merged.root.kind = Node::Kind::object;
  Node tree;
  try {
    tree = read_config(text, Source::file);
  } catch (const SyntaxError& e) {
    fail_user("{}:{}:{}: {}", source, e.line, e.column, e.what());
  }
  const Member* values = tree.member("values");
  if (!values) fail_user("{}: expected the member \"values\" of a resolved configuration", source);
  for (const Member& m : values->value.members) {
    const Member* value = m.value.member("value");
    if (!value) fail_user("{}:{}: {} has no \"value\"", source, m.place.line, m.key);
    const Node& node = value->value;
    if (m.key == "run.ranks") {
      request.ranks = node.integer;
    } else if (m.key == "run.device") {
      request.device = node.text;
    } else if (m.key == "run.output") {
      request.output = node.text;
    } else if (m.key == "run.init_weights") {
      request.init_weights = node.text;
    } else if (m.key == "run.model_directory") {
      merged.model_directory = node.text;
    } else if (m.key == "run.ignored") {
      continue;  // what was ignored is not among the values
    } else if (m.key == "run.base_weights") {
      request.base_weights = node.text;
    } else if (m.key == "run.resume") {
      request.resume = node.text;
    } else if (m.key == "run.overwrite") {
      request.overwrite = node.boolean;
    } else if (m.key == "run.resume_with_changes") {
      request.resume_with_changes = node.boolean;
    } else if (!put(merged.root, m.key, node)) {
      fail_user("{}:{}: {} is out of place", source, m.place.line, m.key);
    }
  }
  const LoadedConfig loaded = solve(merged, request);
  if (has_errors(loaded.verdicts)) throw UserError(error_text(loaded));
  return loaded.job;
}

}  // namespace dstrain
