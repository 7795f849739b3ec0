#include "runtime/config/solve/solve.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/config/axes_text.h"
#include "runtime/config/device_name.h"
#include "runtime/config/judge.h"
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/model/family.h"
#include "runtime/config/read/config_json.h"
#include "runtime/config/shell_quote.h"
#include "runtime/config/solve/communication/solve_sparse.h"
#include "runtime/config/solve/diagnostics.h"
#include "runtime/config/solve/exclusions.h"
#include "runtime/config/solve/model/check_sizes.h"
#include "runtime/config/solve/model/solve_fine_tuning.h"
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

// Returns a path without "." and "..", and without a '/' at its end.
fs::path tidy(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  return normal.has_filename() ? normal : normal.parent_path();
}

bool is_step_name(const fs::path& path) {
  constexpr std::string_view prefix = "step_";
  const std::string name = path.filename().string();
  return name.starts_with(prefix) && name.size() > prefix.size() && name[prefix.size()] >= '0' &&
         name[prefix.size()] <= '9';
}

// Returns whether `path` is an output directory, which may have the name of a checkpoint or of their folder.
bool holds_checkpoints(const fs::path& path) {
  std::error_code none;
  return fs::is_directory(path / "checkpoints", none) && !fs::exists(path / "manifest.json", none);
}

// Returns DIR for DIR/checkpoints and DIR/checkpoints/step_4; nothing for another path.
std::optional<fs::path> above_checkpoints(const fs::path& path) {
  const fs::path folder = is_step_name(path) ? path.parent_path() : path;
  if (folder.filename() != "checkpoints" || holds_checkpoints(path)) return std::nullopt;
  return folder.parent_path();
}

// Returns DIR for DIR/step_4, a checkpoint that was moved; nothing for another path.
std::optional<fs::path> above_step(const fs::path& path) {
  if (!is_step_name(path) || holds_checkpoints(path)) return std::nullopt;
  return path.parent_path();
}

// Records and returns where the run's first weights are: the file or folder that --init_weights names, or the model's own
// folder; empty: fresh weights.
std::string solve_weights(const Job& job, Values& values, const ConfigRequest& request) {
  constexpr std::string_view key = "run.init_weights";
  if (!request.init_weights && job.resume.empty() && !job.model_directory.empty()) {
    values.record(key, json_text(std::string_view(job.model_directory)), "derived: the model's");
    return job.model_directory;
  }
  const std::string given = request.init_weights.value_or("");
  values.record(key, json_text(std::string_view(given)),
                request.init_weights ? "--init_weights" : "default");
  return given == kFreshWeights ? "" : given;
}

void solve_command_line(Job& job, Values& values, const ConfigRequest& request) {
  const auto option = [&](const std::optional<std::string>& value, const std::string& name,
                          const std::string& fallback) {
    values.record("run." + name, json_text(std::string_view(value.value_or(fallback))),
                  value ? "--" + name : "default");
    return value.value_or(fallback);
  };
  job.device = option(request.device, "device", "auto");
  check_device_name(job.device);
  const auto flag = [&values](bool given, const std::string& name) {
    values.record("run." + name, given ? "true" : "false", given ? "--" + name : "default");
    return given;
  };
  job.resume = option(request.resume, "resume", "");
  job.init_weights = solve_weights(job, values, request);
  job.overwrite = flag(request.overwrite, "overwrite");
  job.resume_with_changes = flag(request.resume_with_changes, "resume_with_changes");
  if (!job.resume.empty() && !request.output) {
    job.output = run_folder_of(job.resume);
    values.record("run.output", json_text(std::string_view(job.output)), "derived: --resume");
  } else {
    const std::string stem = fs::path(request.path).stem().string();
    job.output = option(request.output, "output", "runs/" + stem);
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

std::string run_folder_of(const std::string& resume) {
  std::error_code none;
  const fs::path canonical = fs::weakly_canonical(resume, none);
  fs::path named = tidy(fs::absolute(resume));
  // ".." after a link leads elsewhere than the text says.
  if (fs::exists(resume, none) && !fs::equivalent(named, resume, none)) named = canonical;
  for (const auto& above : {above_checkpoints, above_step})
    for (const fs::path& path : {named, canonical})
      if (const std::optional<fs::path> folder = above(path)) {
        const bool relative = path == named && fs::path(resume).is_relative();
        return (relative ? folder->lexically_proximate(fs::current_path()) : *folder).string();
      }
  return tidy(resume).string();
}

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
  solve_command_line(job, values, request);
  const std::optional<int64_t> data_ranks =
      solve_axes(job, values, diagnostics, request.ranks, request.ranks_origin);
  const BatchSolution batch =
      solve_batch(values, diagnostics, data_ranks, data_ranks_origin(job, request.ranks_origin));
  job.batch = batch.config;
  loaded.default_batch = batch.by_default;
  solve_run(job, values, diagnostics, facts, request);
  solve_training(job, values, diagnostics, facts);
  check_fine_tuning(job, diagnostics);
  check_sizes(job, values, diagnostics);
  check_pipeline(job, diagnostics);
  check_axes(job, diagnostics);
  if (data_ranks && *data_ranks * job.sequence_ranks == 1) judge_lone_rank(job, diagnostics);
  if (data_ranks) check_shards(job, values, diagnostics, *data_ranks, request.ranks_origin);
  solve_sparse(job, values, diagnostics, data_ranks.has_value());
  judge_exclusions(job, values, diagnostics);
  if (job.graph == GraphMode::on && job.device == "cpu")
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
