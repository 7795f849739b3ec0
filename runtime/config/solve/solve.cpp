#include "runtime/config/solve/solve.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/config/axes_text.h"
#include "runtime/config/family/family.h"
#include "runtime/config/judge.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/read/config_json.h"
#include "runtime/config/read/model_source.h"
#include "runtime/config/read/resolved_source.h"
#include "runtime/config/read/run_folder.h"
#include "runtime/config/shell_quote.h"
#include "runtime/config/solve/communication/solve_sparse.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/exclusions.h"
#include "runtime/config/solve/model/check_sizes.h"
#include "runtime/config/solve/model/solve_fine_tuning.h"
#include "runtime/config/solve/model/solve_objective.h"
#include "runtime/config/solve/model/solve_vocabulary.h"
#include "runtime/config/solve/solve_axes.h"
#include "runtime/config/solve/solve_batch.h"
#include "runtime/config/solve/solve_pipeline.h"
#include "runtime/config/solve/solve_run.h"
#include "runtime/config/solve/solve_training.h"
#include "runtime/config/solve/values.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMostRanks = 1 << 20;

// Records and returns where the run's first weights are: the file or folder that --init_weights names, or the model's own
// folder or file; empty: fresh weights.
std::string solve_weights(const Job& job, Values& values, const ConfigRequest& request,
                          const ModelFamily& family) {
  constexpr std::string_view key = "run.init_weights";
  const Member* const archive = family.open ? values.given(model_path(family.file_key)) : nullptr;
  if (!request.init_weights && job.resume.empty() && archive) {
    values.record(key, json_text(archive->value), "derived: the model's");
    return archive->value.text;
  }
  if (!request.init_weights && job.resume.empty() && !job.model_directory.empty()) {
    values.record(key, json_text(std::string_view(job.model_directory)), "derived: the model's");
    return job.model_directory;
  }
  const std::string given = request.init_weights.value_or("");
  values.record(key, json_text(std::string_view(given)),
                request.init_weights ? "--init_weights" : "default");
  return given == kFreshWeights ? "" : given;
}

// Records and returns the first weights of the run, or of the one that it resumes; nothing if they are not known.
std::optional<std::string> solve_base(const Job& job, Values& values,
                                      const ConfigRequest& request) {
  if (job.resume.empty()) return job.init_weights;
  std::optional<std::string> base =
      request.base_weights ? *request.base_weights : recorded_base(run_folder_of(job.resume));
  if (base)
    values.record("run.base_weights", json_text(std::string_view(*base)),
                  "derived: the run that is resumed");
  return base;
}

// Returns a list of texts as JSON.
std::string json_list(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts)
    list += (list.empty() ? "" : ", ") + json_text(std::string_view(text));
  return "[" + list + "]";
}

// Returns the name of the folder that a file is in.
std::string folder_name(const fs::path& file) {
  std::error_code none;
  return fs::absolute(file, none).lexically_normal().parent_path().filename().string();
}

// Returns the output directory of a run for which none is named: after the configuration, and after the folder or file of
// the model where one is named. The resolved configuration of a run has the name of that run's folder, which the model of
// the file is part of.
std::string default_output(const Merged& merged, const ConfigRequest& request) {
  const fs::path config = request.path, model = merged.names.model_file;
  const bool resolved = config.filename() == kResolvedConfig;
  const std::string name = resolved ? folder_name(config) : config.stem().string();
  if (model.empty() || (resolved && !request.model)) return "runs/" + name;
  return fmt::format("runs/{}-{}", name,
                     model.filename() == kConfigJson ? folder_name(model) : model.stem().string());
}

void solve_command_line(Job& job, Values& values, const Merged& merged,
                        const ConfigRequest& request, const ModelFamily& family) {
  const auto option = [&](const std::optional<std::string>& value, const std::string& name,
                          const std::string& fallback) {
    values.record("run." + name, json_text(std::string_view(value.value_or(fallback))),
                  value ? "--" + name : "default");
    return value.value_or(fallback);
  };
  job.device = device_named(option(request.device, "device", "auto"));
  const auto flag = [&values](bool given, const std::string& name) {
    values.record("run." + name, given ? "true" : "false", given ? "--" + name : "default");
    return given;
  };
  job.resume = option(request.resume, "resume", "");
  job.init_weights = solve_weights(job, values, request, family);
  job.base_weights = solve_base(job, values, request);
  job.overwrite = flag(request.overwrite, "overwrite");
  job.resume_with_changes = flag(request.resume_with_changes, "resume_with_changes");
  if (!job.resume.empty() && !request.output) {
    job.output = run_folder_of(job.resume);
    values.record("run.output", json_text(std::string_view(job.output)), "derived: --resume");
  } else {
    job.output_by_default = !request.output;
    job.output = option(request.output, "output", default_output(merged, request));
  }
  if (job.output.empty()) fail_user("--output: expected the name of a directory, found nothing");
}

// Returns whether the configuration has a key at `path`, be it one with dots in its own name.
bool has_key(const Node& section, std::string_view path) {
  return std::ranges::any_of(section.members, [path](const Member& m) {
    if (!path.starts_with(m.key)) return false;
    const std::string_view rest = path.substr(m.key.size());
    return rest.empty() || (rest.front() == '.' && has_key(m.value, rest.substr(1)));
  });
}

// Adds a verdict on each key that is to be ignored and that the configuration does not have: it may be misspelt.
void judge_ignored(const Merged& merged, std::vector<Verdict>& verdicts) {
  for (const auto& [key, ignored] : merged.ignored) {
    if (has_key(merged.root, key)) continue;
    const SourcePlace& place = ignored.place;
    Verdict v;
    v.key = printable(key);
    if (place.source == Source::file) {
      v.line = place.line;
      v.column = place.column;
    }
    v.state = State::no_effect;
    v.message = "the ignored key is not in the configuration";
    v.where = place.source == Source::command_line ? "--ignore" : where(merged.names, place, key);
    v.warns = true;
    verdicts.push_back(std::move(v));
  }
}

}  // namespace

LoadedConfig solve(const Merged& merged, const ConfigRequest& request) {
  if (request.ranks && (*request.ranks < 1 || *request.ranks > kMostRanks))
    fail_user("{} {}: expected from 1 to {} ranks", request.ranks_origin, *request.ranks,
              kMostRanks);
  const Node root = canonical(merged);
  const Facts facts = find_facts(root, *request.models);
  LoadedConfig loaded;
  loaded.verdicts = judge(merged, facts);
  Values values(root, facts, merged.names, loaded.settings);
  Diagnostics diagnostics(merged.root, merged.names, loaded.verdicts, loaded.warnings);
  Job& job = loaded.job;
  job.ranks = static_cast<int>(request.ranks.value_or(1));
  values.record("run.ranks", std::to_string(job.ranks),
                request.ranks ? request.ranks_origin : "default");
  if (!request.ignored.empty())
    values.record("run.ignored", json_list(request.ignored), "--ignore");
  job.model_directory = merged.model_directory;
  if (!job.model_directory.empty())
    values.record("run.model_directory", json_text(std::string_view(job.model_directory)),
                  where(merged.names, find(merged.root, "dstrain.model")->place, "dstrain.model"));
  if (merged.model_has_namesake)
    diagnostics.warning(
        kModelType,
        fmt::format("{0} is the type, with fresh weights; the folder is ./{0}", facts.model));
  if (!merged.folder_of_weights.empty() && !request.init_weights && !request.resume)
    diagnostics.warning(
        kHuggingFaceType,
        fmt::format("the weights are fresh, as a file has none: --model {} takes those beside it",
                    shell_quoted(merged.folder_of_weights)));
  solve_command_line(job, values, merged, request, *facts.family);
  const std::optional<int64_t> data_ranks =
      solve_axes(job, values, diagnostics, request.ranks, request.ranks_origin);
  const BatchSolution batch =
      solve_batch(values, diagnostics, data_ranks, data_ranks_origin(job, request.ranks_origin));
  job.batch = batch.config;
  loaded.default_batch = batch.by_default;
  solve_run(job, values, diagnostics, facts, request);
  solve_vocabulary(job, values, merged, diagnostics);
  solve_training(job, values, diagnostics, facts);
  check_fine_tuning(job, diagnostics);
  check_objective(job, values, diagnostics);
  check_sizes(job, values, diagnostics);
  check_pipeline(job, diagnostics);
  check_axes(job, diagnostics);
  check_experts(job, diagnostics, data_ranks, request.ranks_origin);
  if (data_ranks && *data_ranks * job.sequence_ranks == 1) judge_lone_rank(job, diagnostics);
  if (data_ranks) check_shards(job, values, diagnostics, *data_ranks, request.ranks_origin);
  solve_sparse(job, values, diagnostics, data_ranks.has_value());
  judge_exclusions(job, values, diagnostics);
  if (job.graph == GraphMode::on && job.device == DeviceChoice::cpu)
    diagnostics.error("dstrain.cuda_graph", "the CPU has no graphs: use \"auto\" or --device cuda");
  else if (job.graph == GraphMode::on)
    diagnostics.explain("dstrain.cuda_graph", "needs a GPU: a run on the CPU stops at it");
  if (const Member* dp = values.given("data_parallel_size");
      dp && data_ranks && *to_integer(dp->value) != *data_ranks)
    diagnostics.error("data_parallel_size",
                      fmt::format("{} is not the number of {}ranks, {} ({})", json_text(dp->value),
                                  has_model_axes(axis_ranks(job)) ? "data-parallel " : "",
                                  *data_ranks, request.ranks_origin));
  for (const Setting& s : loaded.settings)
    if (s.origin.substr(0, 4) == "auto")
      diagnostics.explain(s.key, fmt::format("{} ({})", s.value, s.origin));
  judge_ignored(merged, loaded.verdicts);
  loaded.config_json = config_json(merged, job);
  diagnostics.finish();
  return loaded;
}

std::string error_text(const LoadedConfig& loaded) {
  std::string text = loaded.without_effect;
  for (const Verdict& v : loaded.verdicts)
    if (is_error(v.state) && !v.echo)
      text += fmt::format("{}{}: {}: {}", text.empty() ? "" : "\n", v.where, v.key, v.text());
  if (!loaded.way_on.empty()) text += "\n  " + loaded.way_on;
  return text;
}

}  // namespace dstrain
