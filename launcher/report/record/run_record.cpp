#include "launcher/report/record/run_record.h"

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <optional>
#include <set>
#include <system_error>

#include "launcher/process/descriptor.h"
#include "runtime/config/config_request.h"
#include "runtime/config/read/run_folder.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain::report {
namespace {

namespace fs = std::filesystem;

std::optional<timespec> written_at(const fs::path& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return status.st_mtim;
}

int64_t integer_of(const RunConfig& config, std::string_view key) {
  const std::string text = value_of(config, key);
  int64_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value);
  return value;
}

// Returns the traces that may be the run's: those in its directory and the one that its configuration names, which is
// relative to the directory in which the run was started. Another run may have replaced that one since, so it counts only
// where it was written while this run wrote its metrics, or right after.
std::vector<fs::path> traces_of(const RunRecord& run) {
  std::vector<fs::path> traces;
  std::error_code none;
  for (fs::directory_iterator at(run.directory, none), end; !none && at != end;
       at.increment(none)) {
    const std::string name = at->path().filename().string();
    if (name.starts_with("trace_step_") && name.ends_with(".json")) traces.push_back(at->path());
  }
  const std::string named = value_of(run.config, "dstrain.trace");
  if (named.empty()) return traces;
  const std::string output = value_of(run.config, "run.output");
  const std::string here = fs::absolute(run.directory, none).string();
  fs::path path = named;
  if (path.is_relative() && !output.empty() && here.ends_with("/" + output))
    path = fs::path(here.substr(0, here.size() - output.size())) / named;
  const auto begin = written_at(fs::path(run.directory) / kResolvedConfig);
  const auto end = written_at(fs::path(run.directory) / "metrics.jsonl");
  const auto trace = written_at(path);
  constexpr time_t kWritingEnds = 60;  // seconds after the last step
  if (begin && end && trace && trace->tv_sec >= begin->tv_sec &&
      trace->tv_sec <= end->tv_sec + kWritingEnds)
    traces.push_back(path);
  return traces;
}

void read_trace(RunRecord& run) {
  std::vector<fs::path> traces = traces_of(run);
  std::ranges::sort(traces, [](const fs::path& a, const fs::path& b) {
    const timespec none{}, first = written_at(a).value_or(none),
                           second = written_at(b).value_or(none);
    return std::pair(first.tv_sec, first.tv_nsec) > std::pair(second.tv_sec, second.tv_nsec);
  });
  for (const fs::path& path : traces) {
    run.trace = read_trace_times(path.string());
    if (run.trace) return;
    run.notes.push_back(path.string() + " is no trace of a run, or has been cut short.");
  }
}

RunRecord read_run(const std::string& named, size_t columns) {
  RunRecord run;
  run.directory = run_folder_of(named);
  std::error_code none;
  if (!fs::is_directory(run.directory, none))
    fail_user("{}: there is no such directory: give the output directory of a run", run.directory);
  const fs::path folder = run.directory;
  const fs::path metrics = folder / "metrics.jsonl", settings = folder / kResolvedConfig;
  run.is_running = is_used_by_a_run(run.directory);
  if (!fs::exists(metrics, none) && !fs::exists(settings, none) && !run.is_running)
    fail_user("{}: it has neither metrics.jsonl nor {}: give the output directory of a run",
              run.directory, kResolvedConfig);
  run.metrics = read_run_metrics(metrics.string(), columns);
  if (const auto written = written_at(metrics))
    run.written = fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", fmt::gmtime(written->tv_sec));
  try {
    run.config = read_run_config(settings.string());
  } catch (const UserError& e) {
    run.notes.emplace_back(e.what());
  }
  run.asked_steps = integer_of(run.config, "dstrain.steps");
  read_trace(run);
  return run;
}

// Names runs by as much of the end of their directories as tells them apart.
void name_runs(std::vector<RunRecord>& runs) {
  const auto end_of = [](const RunRecord& run, size_t parts) {
    std::error_code none;
    fs::path rest = fs::absolute(run.directory, none).lexically_normal(), name;
    if (!rest.has_filename()) rest = rest.parent_path();
    for (; parts > 0 && rest.has_filename(); --parts, rest = rest.parent_path())
      name = name.empty() ? rest.filename() : rest.filename() / name;
    return name.empty() ? run.directory : name.string();
  };
  constexpr size_t kMostParts = 64;
  for (size_t parts = 1; parts <= kMostParts; ++parts) {
    std::set<std::string> names;
    for (RunRecord& run : runs) names.insert(run.name = end_of(run, parts));
    if (names.size() == runs.size()) return;
  }
}

}  // namespace

std::string RunRecord::state() const {
  if (is_running) return metrics.steps == 0 ? "no step yet" : "in progress";
  if (metrics.steps == 0) return "no step";
  return asked_steps > metrics.last_step ? "ended early" : "done";
}

std::string RunRecord::description() const {
  if (config.empty()) return "";
  std::vector<std::string> parts;
  if (const std::string model = value_of(config, "dstrain.model.type"); !model.empty())
    parts.push_back(model);
  if (value_of(config, "bf16.enabled") == "true") parts.emplace_back("bf16");
  if (value_of(config, "fp16.enabled") == "true") parts.emplace_back("fp16");
  if (const std::string stage = value_of(config, "zero_optimization.stage"); !stage.empty())
    parts.push_back("ZeRO stage " + stage);
  if (const int64_t ranks = integer_of(config, "run.ranks"); ranks > 0)
    parts.push_back(counted(ranks, "rank"));
  if (const std::string batch = value_of(config, "train_batch_size"); !batch.empty())
    parts.push_back("batch " + batch);
  return fmt::format("{}", fmt::join(parts, ", "));
}

bool is_used_by_a_run(const std::string& directory) {
  // As OutputLock, but for a directory in which this process may not write, and without a wait for ranks that are ending.
  const Descriptor lock(::open((directory + "/.dstrain.lock").c_str(),
                               O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  return lock.get() >= 0 && ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

size_t columns_for(size_t runs) {
  constexpr size_t kMost = 640, kLeast = 40, kOfAllRuns = 1600;
  return std::clamp(kOfAllRuns / std::max<size_t>(runs, 1), kLeast, kMost);
}

std::vector<RunRecord> read_runs(const std::vector<std::string>& runs, size_t columns) {
  std::vector<RunRecord> records;
  records.reserve(runs.size());
  for (const std::string& run : runs) records.push_back(read_run(run, columns));
  name_runs(records);
  return records;
}

}  // namespace dstrain::report
