#include "runtime/config/load.h"

#include <fmt/core.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "runtime/config/judge.h"
#include "runtime/config/key_table.h"
#include "runtime/config/merge.h"
#include "runtime/config/reader.h"
#include "runtime/config/solve.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr int64_t kMostRanks = 1 << 20;

// The run's folder that a checkpoint belongs to: DIR of DIR, DIR/checkpoints and DIR/checkpoints/step_4.
std::string run_folder_of(const std::string& resume) {
  namespace fs = std::filesystem;
  fs::path folder = fs::path(resume).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();  // "out/"
  const auto parent = [&folder] {
    return folder.has_parent_path() ? folder.parent_path() : fs::path(".");
  };
  if (folder.filename().string().starts_with("step_")) folder = parent();
  if (folder.filename() == "checkpoints") folder = parent();
  return folder.string();
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
  job.init_weights = option(request.init_weights, "init_weights", "");
  job.resume = option(request.resume, "resume", "");
  job.overwrite = flag(request.overwrite, "overwrite");
  job.resume_with_changes = flag(request.resume_with_changes, "resume_with_changes");
  if (!job.resume.empty() && !request.output) {
    job.output = run_folder_of(job.resume);
    values.record("run.output", json_text(std::string_view(job.output)), "derived: --resume");
  } else {
    const std::string stem = std::filesystem::path(request.path).stem().string();
    job.output = option(request.output, "output", "runs/" + stem);
  }
  if (job.output.empty()) fail_user("--output: expected the name of a directory, found nothing");
}

LoadedConfig resolve(const Merged& merged, const ConfigRequest& request) {
  if (request.ranks && (*request.ranks < 1 || *request.ranks > kMostRanks))
    fail_user("{} {}: expected from 1 to {} ranks", request.ranks_origin, *request.ranks,
              kMostRanks);
  const Node root = canonical(merged);
  const Facts facts = find_facts(root);
  LoadedConfig loaded;
  loaded.verdicts = judge(merged, facts);
  Values values(root, facts, merged.names, loaded.settings);
  Problems problems(merged.root, merged.names, loaded.verdicts, loaded.warnings);
  Job& job = loaded.job;
  job.ranks = static_cast<int>(request.ranks.value_or(1));
  values.record("run.ranks", std::to_string(job.ranks),
                request.ranks ? request.ranks_origin : "default");
  solve_command_line(job, values, request);
  const BatchSolution batch = solve_batch(values, problems, request.ranks, request.ranks_origin);
  job.batch = batch.config;
  loaded.default_batch = batch.by_default;
  solve_run(job, values, problems, facts, request.need_data);
  solve_training(job, values, problems, facts);
  check_sizes(job, problems);
  if (job.graph == GraphMode::on && job.device == "cpu")
    problems.error("dstrain.cuda_graph", "the CPU has no graphs: use \"auto\" or --device cuda");
  else if (job.graph == GraphMode::on)
    problems.explain("dstrain.cuda_graph", "needs a GPU: a run on the CPU stops at it");
  if (const Member* dp = values.given("data_parallel_size");
      dp && request.ranks && *to_integer(dp->value) != *request.ranks)
    problems.error("data_parallel_size",
                   fmt::format("{} is not the number of ranks, {} ({})", json_text(dp->value),
                               *request.ranks, request.ranks_origin));
  for (const Setting& s : loaded.settings)
    if (s.origin.substr(0, 4) == "auto")
      problems.explain(s.key, fmt::format("{} ({})", s.value, s.origin));
  for (const Verdict& v : loaded.verdicts)
    if (!is_error(v.state) &&
        ((v.warns && !v.echo) || v.message.substr(0, 15) == "another name of"))
      problems.warning(v.key, v.message);
  for (const auto& [key, by] : merged.ignored)
    if (!find(merged.root, key))
      loaded.warnings.push_back(
          fmt::format("{}: {} is ignored and is not there", by, printable(key)));
  return loaded;
}

std::string reasons(const LoadedConfig& loaded) {
  std::string text;
  for (const Verdict& v : loaded.verdicts)
    if (is_error(v.state) && !v.echo)
      text += fmt::format("{}{}: {}: {}", text.empty() ? "" : "\n", v.where, v.key, v.message);
  return text;
}

}  // namespace

void check_device_name(const std::string& device) {
  if (!one_of("auto|cpu|cuda|emulated", device))
    fail_user("--device {}: expected auto, cpu or cuda (or emulated, a device for tests)", device);
}

LoadedConfig load_config(const ConfigRequest& request) {
  ConfigRequest with_ranks = request;
  if (!request.ranks) {
    with_ranks.ranks = 1;
    with_ranks.ranks_origin = "the default";
  }
  try {
    LoadedConfig loaded = resolve(merge(with_ranks), with_ranks);
    if (has_errors(loaded.verdicts)) throw UserError(reasons(loaded));
    return loaded;
  } catch (const SyntaxError& e) {
    fail_user("{}:{}:{}: {}", request.path, e.line, e.column, e.what());
  }
}

LoadedConfig check_config(const ConfigRequest& request) {
  try {
    return resolve(merge(request), request);
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

bool has_errors(const std::vector<Verdict>& verdicts) {
  return std::ranges::any_of(verdicts, [](const Verdict& v) { return is_error(v.state); });
}

Job job_from_resolved(const std::string& text, const std::string& source) {
  ConfigRequest request;
  request.path = source;
  Merged merged;
  merged.names.file = source;
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
  const LoadedConfig loaded = resolve(merged, request);
  if (has_errors(loaded.verdicts)) throw UserError(reasons(loaded));
  return loaded.job;
}

}  // namespace dstrain
