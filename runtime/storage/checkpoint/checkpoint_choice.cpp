// Which checkpoint a resume takes, and what becomes of those that it does not take.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "runtime/core/error.h"
#include "runtime/storage/atomic_file.h"
#include "runtime/storage/checkpoint/checkpoint_places.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using Kind = CheckpointName::Kind;

std::string file_name(const std::string& path) {
  return fs::path(path).filename().string();
}

// The folder of step_N that `dir`, an output directory or that folder itself, stands for.
std::string root_of(const std::string& dir) {
  return is_directory(dir + "/checkpoints") ? dir + "/checkpoints" : dir;
}

// Finds the newest checkpoint of a folder's line, and says of newer ones why they are not it.
class Choice {
 public:
  Choice(std::string root, const DamagedCheckpoints& damaged)
      : root_(std::move(root)), damaged_(damaged), line_(read_lineage(root_)) {}

  FoundCheckpoint make() {
    for (const CheckpointName& name : names_in(root_)) {
      if (name.kind == Kind::abandoned) {
        aside_.push_back(file_name(name.path));
      } else if (name.kind == Kind::building || !name.complete) {
        incomplete_.push_back(file_name(name.path));
        pass_over(name, "saving it was interrupted");
      } else if (std::optional<Manifest> manifest = takes(name)) {
        return {.dir = name.path,
                .manifest = std::move(*manifest),
                .passed_over = std::move(passed_over_),
                .named = false};
      }
    }
    fail();
  }

 private:
  std::optional<Manifest> takes(const CheckpointName& name) {
    if (const auto it = damaged_.find(name.path); it != damaged_.end()) {
      pass_over(name, it->second);
      return std::nullopt;
    }
    try {
      Manifest manifest = read_whole_manifest(name.path);
      if (!line_ || line_->holds(manifest.label.line.id, name.step)) return manifest;
      pass_over(name, "it is of another run, or of a branch that this run has left");
    } catch (const UserError& e) {
      pass_over(name, e.what());
    }
    return std::nullopt;
  }

  void pass_over(const CheckpointName& name, const std::string& why) {
    passed_over_.push_back(fmt::format("{}: {}", file_name(name.path), why));
  }

  [[noreturn]] void fail() const {
    if (passed_over_.size() > incomplete_.size())
      fail_user("--resume: no checkpoint in {} can be taken: {}", root_,
                fmt::join(passed_over_, "; "));
    if (!incomplete_.empty())
      fail_user(
          "--resume: there is no complete checkpoint in {}; {} lack {}: saving was interrupted",
          root_, fmt::join(incomplete_, ", "), kManifestName);
    if (!aside_.empty())
      fail_user(
          "--resume: there is no checkpoint of the folder's own line in {}; {} were set aside: "
          "name "
          "one to go on from it",
          root_, fmt::join(aside_, ", "));
    fail_user(
        "--resume: there is no checkpoint in {}; give the output directory of a run with "
        "save_interval",
        root_);
  }

  std::string root_;
  const DamagedCheckpoints& damaged_;
  std::optional<Lineage> line_;
  std::vector<std::string> passed_over_, incomplete_, aside_;
};

// The line of a checkpoint; nothing where its manifest cannot be read.
std::optional<Lineage> line_of(const std::string& dir) {
  try {
    return read_whole_manifest(dir).label.line;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// A name for `name` beside the line, which no other has.
std::string aside_name(const std::string& root, const CheckpointName& name,
                       const std::optional<Lineage>& line) {
  const std::string id = !line ? "damaged" : line->id.empty() ? "old" : line->id;
  const std::string base = fmt::format("{}/step_{}.abandoned-{}", root, name.step, id);
  std::string free = base;
  for (int i = 2; is_directory(free); ++i) free = fmt::format("{}-{}", base, i);
  return free;
}

bool same_directory(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

}  // namespace

FoundCheckpoint locate_checkpoint(const std::string& dir, const DamagedCheckpoints& damaged) {
  if (!is_directory(dir)) fail_user("--resume: {} is not a directory", dir);
  std::error_code error;
  const bool complete = fs::is_regular_file(fmt::format("{}/{}", dir, kManifestName), error);
  if (!complete && is_checkpoint_name(dir))
    fail_user("--resume: {} has no {}: saving it was interrupted; use another checkpoint", dir,
              kManifestName);
  if (!complete) return Choice(root_of(dir), damaged).make();
  return {.dir = dir, .manifest = read_whole_manifest(dir), .passed_over = {}, .named = true};
}

CheckpointInfo find_checkpoint(const std::string& dir) {
  return locate_checkpoint(dir).info();
}

std::optional<int64_t> newest_step_in(const std::string& output_dir) {
  for (const CheckpointName& name : names_in(output_dir + "/checkpoints"))
    if (name.counts()) return name.step;
  return std::nullopt;
}

void remove_checkpoints(const std::string& output_dir) {
  for (const CheckpointName& name : names_in(output_dir + "/checkpoints"))
    if (name.kind != Kind::abandoned) remove_tree(name.path);
  remove_tree(output_dir + "/checkpoints/lineage.json");
}

std::vector<std::string> continue_line(const std::string& output_dir, const Lineage& line,
                                       int64_t step, const std::string& resumed) {
  const std::string root = output_dir + "/checkpoints";
  std::vector<std::string> moved;
  if (!is_directory(root)) return moved;
  write_lineage(root, line);  // first: from now on nothing else is taken, whatever its name
  std::string restore;
  for (const CheckpointName& name : names_in(root)) {
    if (name.kind == Kind::abandoned && same_directory(name.path, resumed)) restore = name.path;
    if (!name.counts()) continue;
    const std::optional<Lineage> its = line_of(name.path);
    if (its && name.step <= step && line.holds(its->id, name.step)) continue;
    const std::string aside = aside_name(root, name, its);
    rename_checkpoint(name.path, aside);
    moved.push_back(file_name(aside));
  }
  const CheckpointPlace place(output_dir, step);
  if (!restore.empty() && !is_directory(place.done)) rename_checkpoint(restore, place.done);
  sync_directory(root);
  return moved;
}

void remove_old_checkpoints(const std::string& output_dir, const Lineage& line, int64_t keep_last,
                            int64_t keep_every) {
  if (keep_last == 0) return;
  int64_t kept = 0;
  for (const CheckpointName& name : names_in(output_dir + "/checkpoints")) {
    if (!name.counts()) continue;
    const std::optional<Lineage> its = line_of(name.path);
    if (!its || !line.holds(its->id, name.step)) continue;
    if (++kept > keep_last && (keep_every == 0 || name.step % keep_every != 0))
      remove_tree(name.path);
  }
}

}  // namespace dstrain
