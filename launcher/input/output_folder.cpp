#include "launcher/input/output_folder.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "runtime/config/json/tree.h"
#include "runtime/config/text.h"
#include "runtime/engine/files/adapter_files.h"
#include "runtime/engine/files/end_weights.h"
#include "runtime/storage/checkpoint/checkpoint_choice.h"
#include "runtime/storage/checkpoint/checkpoint_retention.h"
#include "runtime/storage/output_file.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

// Returns whether the run resumes one in its own output directory.
bool resumes_in_place(const Job& job) {
  return !job.resume.empty() && is_checkpoint_of(find_checkpoint(job.resume).dir, job.output);
}

// Returns whether the run takes another directory where one is not free.
bool has_choice(const Job& job) {
  return job.output_by_default && !job.overwrite;
}

bool is_used(const std::string& directory) {
  try {
    refuse_if_locked(directory);
    return false;
  } catch (const OutputInUse&) {
    return true;
  }
}

}  // namespace

std::string results_in(const std::string& directory) {
  namespace fs = std::filesystem;
  std::error_code none;
  if (const std::optional<int64_t> step = newest_step_in(directory))
    return fmt::format("the checkpoint of step {}", *step);
  for (const std::string_view name : {kWeightsName, kIndexName})
    if (fs::exists(fs::path(directory) / name, none)) return "the weights";
  for (const fs::path& folder : {fs::path(directory), fs::path(directory) / kAdapterFolder})
    if (fs::exists(folder / kAdapterWeights, none)) return "an adapter";
  return "";
}

std::string numbered_output(const std::string& directory, int64_t number) {
  return number == 1 ? directory : fmt::format("{}-{}", directory, number);
}

int64_t free_output_number(const std::string& directory) {
  for (int64_t number = 1;; ++number)
    if (const std::string name = numbered_output(directory, number);
        results_in(name).empty() && !is_used(name))
      return number;
}

std::vector<std::string> numbered_outputs(const std::string& directory) {
  namespace fs = std::filesystem;
  const fs::path named = directory;
  const std::string name = named.filename().string();
  std::vector<std::string> found;
  std::error_code none;
  for (fs::directory_iterator at(named.parent_path(), none), end; !none && at != end;
       at.increment(none)) {
    const std::string other = at->path().filename().string();
    const std::string rest = other.starts_with(name) ? other.substr(name.size()) : "-";
    const bool numbered = rest.size() > 1 && rest.front() == '-' &&
                          rest.find_first_not_of("0123456789", 1) == std::string::npos;
    if ((rest.empty() || numbered) && at->is_directory(none)) found.push_back(at->path().string());
  }
  return found;
}

SettledOutput settle_output(LoadedConfig& loaded) {
  Job& job = loaded.job;
  if (!has_choice(job)) return {};
  const std::string named = job.output;
  const int64_t number = free_output_number(named);
  if (number == 1) return {};
  const std::string free = numbered_output(named, number);
  const std::string results = results_in(named);
  const std::string why = results.empty()
                              ? "another run uses " + named
                              : fmt::format("{} holds {} of another run", named, results);
  job.output = free;
  loaded.settle("run.output", json_text(std::string_view(free)), why);
  return {number, fmt::format("{}: results go to {} (--output names another directory, --overwrite "
                              "replaces what {} holds)",
                              why, free, named)};
}

void check_overwriting(const Job& job) {
  if (job.overwrite || resumes_in_place(job)) return;
  if (const std::string results = results_in(job.output); !results.empty())
    fail_user(
        "the output directory {0} holds {1} of another run: --overwrite replaces that run, "
        "--resume {0} goes on with it, --output names another directory",
        job.output, results);
}

void refuse_if_used(const Job& job) {
  try {
    refuse_if_locked(job.output);
  } catch (const OutputInUse& e) {
    if (has_choice(job)) throw OutputTaken(e.what());
    throw;
  }
}

std::unique_ptr<OutputLock> lock_output(const Job& job) {
  try {
    auto lock = std::make_unique<OutputLock>(job.output);
    if (!has_choice(job))
      check_overwriting(job);
    else if (!results_in(job.output).empty())
      throw OutputTaken(job.output + " has been taken by another run");
    return lock;
  } catch (const OutputInUse& e) {
    if (has_choice(job)) throw OutputTaken(e.what());
    throw;
  }
}

void check_output_directory(const std::string& directory) {
  std::error_code problem;
  std::filesystem::create_directories(directory, problem);
  if (problem)
    fail_user("cannot make the output directory {}: {} (--output names another one)", directory,
              problem.message());
  for (const char* name :
       {"metrics.jsonl", "model.safetensors", "model.safetensors.index.json", "config.json",
        "vocab.json", "resolved_config.json", "adapter_config.json", "adapter_model.safetensors",
        "adapter/adapter_config.json", "adapter/adapter_model.safetensors"}) {
    const std::string file = fmt::format("{}/{}", directory, name);
    const std::filesystem::file_status there = std::filesystem::status(file, problem);
    if (std::filesystem::exists(there) && !std::filesystem::is_regular_file(there))
      fail_user(
          "{}: the run writes this file, and something else has its name: remove it, or name "
          "another directory with --output",
          file);
  }
  if (const std::string reason = new_file_problem(directory); !reason.empty())
    fail_user("cannot write in the output directory {}: {} (--output names another one)", directory,
              reason);
}

void check_own_files(const Job& job) {
  const std::string& output = job.output;
  for (const char* name : {".dstrain.lock", "metrics.jsonl"})
    if (const std::string problem = output_file_problem(fmt::format("{}/{}", output, name));
        !problem.empty())
      fail_user("cannot write {}/{}: {}, or name another directory with --output", output, name,
                problem);
  const auto check_folder = [](const std::string& folder, std::string_view content) {
    std::error_code none;
    if (std::filesystem::exists(folder, none) && !std::filesystem::is_directory(folder, none))
      fail_user(
          "{}: the run writes {} to a folder of this name, and something else has it: remove that, "
          "or name another directory with --output",
          folder, content);
  };
  check_folder(adapter_output(job), "its adapters");
  if (job.optimizer.ema_decay > 0)
    check_folder(fmt::format("{}/{}", output, kAverageFolder), "the averages of its weights");
}

}  // namespace dstrain
