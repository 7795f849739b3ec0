#include "runtime/storage/checkpoint_places.h"

#include <fmt/format.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include "runtime/core/error.h"
#include "runtime/storage/atomic_file.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "step_";
constexpr int64_t kMaxManifestBytes = int64_t{1} << 30;

bool is_directory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

bool is_complete(const std::string& dir) {
  std::error_code error;
  return fs::is_regular_file(fmt::format("{}/{}", dir, kManifestName), error);
}

void rename_directory(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    fail_run("cannot rename the checkpoint {} to {}: {}", from, to, std::strerror(errno));
}

// A name of ours: its step, and what follows the number ("", ".tmp", ".old").
struct StepName {
  int64_t step = 0;
  std::string suffix;
};

std::optional<StepName> step_name(const std::string& name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  StepName found;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, found.step);
  if (error != std::errc() || found.step < 0) return std::nullopt;
  found.suffix.assign(rest, end);
  if (found.suffix != "" && found.suffix != ".tmp" && found.suffix != ".old") return std::nullopt;
  return found;
}

std::vector<std::string> names_in(const std::string& dir) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator it(dir, error), end; !error && it != end; it.increment(error))
    names.push_back(it->path().filename().string());
  if (error) fail_user("cannot read the directory {}: {}", dir, error.message());
  std::sort(names.begin(), names.end());
  return names;
}

// The directory of the newest complete checkpoint in `dir`, which holds step_N.
std::string newest_in(const std::string& dir) {
  std::string best;
  int64_t best_step = -1;
  std::vector<std::string> incomplete;
  for (const std::string& name : names_in(dir)) {
    const std::optional<StepName> step = step_name(name);
    if (!step) continue;
    const std::string path = fmt::format("{}/{}", dir, name);
    if (step->suffix == ".tmp" || !is_complete(path)) {
      incomplete.push_back(name);
    } else if (step->step > best_step) {  // "step_5" comes before "step_5.old"
      best_step = step->step;
      best = path;
    }
  }
  if (!best.empty()) return best;
  if (incomplete.empty())
    fail_user(
        "--resume: there is no checkpoint in {}; give the output directory of a run with "
        "save_interval",
        dir);
  fail_user("--resume: there is no complete checkpoint in {}; {} lack {}: saving was interrupted",
            dir, fmt::join(incomplete, ", "), kManifestName);
}

std::string directory_to_load(const std::string& dir) {
  if (is_complete(dir)) return dir;
  if (!is_directory(dir)) fail_user("--resume: {} is not a directory", dir);
  if (step_name(fs::path(dir + "/").parent_path().filename().string()))
    fail_user("--resume: {} has no {}: saving it was interrupted; use another checkpoint", dir,
              kManifestName);
  return newest_in(is_directory(dir + "/checkpoints") ? dir + "/checkpoints" : dir);
}

}  // namespace

CheckpointPlace::CheckpointPlace(const std::string& output_dir, int64_t step)
    : root(output_dir + "/checkpoints"),
      done(fmt::format("{}/{}{}", root, kPrefix, step)),
      building(done + ".tmp"),
      replaced(done + ".old") {}

void put_in_place(const CheckpointPlace& place) {
  sync_directory(place.building);
  if (is_directory(place.done)) {
    remove_tree(place.replaced);
    rename_directory(place.done, place.replaced);
  }
  rename_directory(place.building, place.done);
  sync_directory(place.root);
  remove_tree(place.replaced);
}

void remove_leftovers(const std::string& root) {
  for (const std::string& name : names_in(root)) {
    const std::optional<StepName> step = step_name(name);
    const std::string path = fmt::format("{}/{}", root, name);
    if (!step || step->suffix.empty()) continue;
    if (step->suffix == ".tmp" || is_complete(fmt::format("{}/{}{}", root, kPrefix, step->step)))
      remove_tree(path);
  }
}

std::string rank_stem(int rank) {
  return fmt::format("rank_{:05}", rank);
}

FoundCheckpoint locate_checkpoint(const std::string& dir) {
  FoundCheckpoint found{.dir = directory_to_load(dir), .manifest = {}};
  const std::string path = fmt::format("{}/{}", found.dir, kManifestName);
  found.manifest = parse_manifest(read_file(path, "manifest", kMaxManifestBytes), path);
  for (const CheckpointTensor& tensor : found.manifest.tensors)
    if (const std::string problem = coverage_problem(found.manifest, tensor); !problem.empty())
      fail_user("{}: {}", path, problem);
  for (const CheckpointFile& file : found.manifest.files) {
    const File opened = File::open(found.dir + "/" + file.name, "checkpoint file");
    if (opened.size() != file.bytes)
      fail_user(
          "{} has {} bytes, and {} expects {}: it is cut short or damaged; use another checkpoint",
          opened.path(), opened.size(), kManifestName, file.bytes);
  }
  return found;
}

CheckpointInfo find_checkpoint(const std::string& dir) {
  const FoundCheckpoint found = locate_checkpoint(dir);
  return {.dir = found.dir,
          .step = found.manifest.step,
          .ranks = static_cast<int>(found.manifest.files.size()),
          .summary = found.manifest.summary};
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail_run("cannot remove {}: {}", path, error.message());
}

std::optional<int64_t> newest_step_in(const std::string& output_dir) {
  const std::string root = output_dir + "/checkpoints";
  if (!is_directory(root)) return std::nullopt;
  std::optional<int64_t> newest;
  for (const std::string& name : names_in(root)) {
    const std::optional<StepName> step = step_name(name);
    if (step && step->suffix != ".tmp" && is_complete(fmt::format("{}/{}", root, name)))
      newest = std::max(newest.value_or(0), step->step);
  }
  return newest;
}

void remove_checkpoints(const std::string& output_dir) {
  const std::string root = output_dir + "/checkpoints";
  if (!is_directory(root)) return;
  for (const std::string& name : names_in(root))
    if (step_name(name)) remove_tree(fmt::format("{}/{}", root, name));
}

}  // namespace dstrain
