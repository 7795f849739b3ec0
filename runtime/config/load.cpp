#include "runtime/config/load.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "runtime/config/json/reader.h"
#include "runtime/config/keys/table/model_registry.h"
#include "runtime/config/read/merge.h"
#include "runtime/config/solve/solve.h"
#include "runtime/config/text.h"
#include "runtime/config/way_on/way_on.h"
#include "runtime/core/error.h"

namespace dstrain {

void LoadedConfig::settle(const std::string& key, const std::string& value,
                          const std::string& why) {
  const auto it = std::ranges::find(settings, key, &Setting::key);
  if (it == settings.end())
    settings.push_back({key, value, "derived: " + why});
  else if (it->value != value)
    *it = {key, value, "derived: " + why};
}

LoadedConfig load_config(const ConfigRequest& request) {
  ConfigRequest with_ranks = request;
  if (!request.ranks) {
    with_ranks.ranks = 1;
    with_ranks.ranks_origin = "the default";
  }
  try {
    LoadedConfig loaded = solve(merge(with_ranks), with_ranks);
    if (!has_errors(loaded.verdicts)) return loaded;
    find_way_on(with_ranks, loaded);
    throw UserError(error_text(loaded));
  } catch (const SyntaxError& e) {
    fail_user("{}:{}:{}: {}", request.path, e.line, e.column, e.what());
  }
}

Job job_of_model_directory(const std::string& directory, const std::vector<std::string>& ignored,
                           const ModelRegistry& models) {
  ConfigRequest request;
  request.models = &models;
  // A folder may have the name of a type, which a model is first.
  request.model = models.find(directory) ? "./" + directory : directory;
  request.ignored = ignored;
  request.ranks = 1;
  LoadedConfig loaded = solve(merge(request), request);
  if (!has_errors(loaded.verdicts)) return loaded.job;
  find_way_on(request, loaded);
  // The command takes --ignore, and none of a run's other options.
  loaded.way_on.clear();
  for (Verdict& v : loaded.verdicts)
    if (v.way_on.find("--set") != std::string::npos) v.way_on.clear();
  throw UserError(error_text(loaded));
}

LoadedConfig check_config(const ConfigRequest& request) {
  try {
    LoadedConfig loaded = solve(merge(request), request);
    if (has_errors(loaded.verdicts)) find_way_on(request, loaded);
    return loaded;
  } catch (const SyntaxError& e) {
    LoadedConfig loaded;
    Verdict v;
    v.line = e.line;
    v.column = e.column;
    v.state = State::error;
    v.message = e.what();
    v.where = fmt::format("{}:{}:{}", request.path, e.line, e.column);
    loaded.verdicts.push_back(std::move(v));
    return loaded;
  }
}

}  // namespace dstrain
