#include "runtime/storage/checkpoint/checkpoint_retention.h"

#include <fmt/core.h>

#include <filesystem>
#include <system_error>

#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/storage/checkpoint/checkpoint_places.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using Kind = CheckpointName::Kind;

// Returns the label of a checkpoint; nothing if its manifest cannot be read.
std::optional<CheckpointLabel> label_of(const std::string& dir) {
  try {
    return read_whole_manifest(dir).label;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

std::optional<Lineage> lineage_of(const std::string& dir) {
  if (const std::optional<CheckpointLabel> label = label_of(dir)) return label->lineage;
  return std::nullopt;
}

bool ends_run(const CheckpointName& name) {
  if (!name.counts()) return false;
  const std::optional<CheckpointLabel> label = label_of(name.path);
  return label && label->end;
}

// Returns an unused name step_N.abandoned-ID for `name`.
std::string abandoned_name(const std::string& root, const CheckpointName& name,
                           const std::optional<Lineage>& lineage) {
  const std::string id = !lineage ? "damaged" : lineage->id.empty() ? "old" : lineage->id;
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

std::optional<int64_t> newest_step_in(const std::string& output_dir) {
  for (const CheckpointName& name : names_in(output_dir + "/checkpoints"))
    if (name.counts()) return name.step;
  return std::nullopt;
}

std::string checkpoint_directory(const std::string& output_dir, int64_t step) {
  return CheckpointPlace(output_dir, step).done;
}

bool is_checkpoint_of(const std::string& dir, const std::string& output_dir) {
  std::error_code error;
  const fs::path named = fs::absolute(dir + "/", error).lexically_normal().parent_path();
  const std::string root = output_dir + "/checkpoints";
  return same_directory(named.parent_path().string(), root) ||
         same_directory(fs::canonical(dir, error).parent_path().string(), root);
}

void remove_checkpoints(const std::string& output_dir, const std::string& resumed) {
  for (const CheckpointName& name : names_in(output_dir + "/checkpoints"))
    if (name.kind != Kind::abandoned && !same_directory(name.path, resumed))
      remove_checkpoint(name);
  remove_tree(output_dir + "/checkpoints/lineage.json");
}

void remove_end_checkpoints(const std::string& output_dir, const std::string& resumed) {
  for (const CheckpointName& name : names_in(output_dir + "/checkpoints"))
    if (ends_run(name) && !same_directory(name.path, resumed)) remove_checkpoint(name);
}

void remove_end_checkpoints(const std::string& output_dir, const Lineage& lineage, int64_t before) {
  for (const CheckpointName& name : names_in(output_dir + "/checkpoints")) {
    if (name.step >= before || !name.counts()) continue;
    const std::optional<CheckpointLabel> label = label_of(name.path);
    if (label && label->end && lineage.contains(label->lineage.id, name.step))
      remove_checkpoint(name);
  }
}

std::vector<std::string> continue_lineage(const std::string& output_dir, const Lineage& lineage,
                                          int64_t step, const std::string& resumed) {
  const std::string root = output_dir + "/checkpoints";
  std::vector<std::string> moved;
  if (!is_directory(root)) return moved;
  write_lineage(root,
                lineage);  // first: from now on no other lineage is loaded
  std::string restore;
  for (const CheckpointName& name : names_in(root)) {
    if (name.kind == Kind::abandoned && same_directory(name.path, resumed)) restore = name.path;
    if (!name.counts()) continue;
    const std::optional<Lineage> its = lineage_of(name.path);
    if (its && name.step <= step && lineage.contains(its->id, name.step)) continue;
    const std::string abandoned = abandoned_name(root, name, its);
    rename_checkpoint(name.path, abandoned);
    moved.push_back(last_name(abandoned));
  }
  const CheckpointPlace place(output_dir, step);
  if (!restore.empty() && !is_directory(place.done)) rename_checkpoint(restore, place.done);
  sync_directory(root);
  return moved;
}

int64_t remove_old_checkpoints(const std::string& output_dir, const Lineage& lineage,
                               int64_t keep_last, int64_t keep_every, std::optional<int64_t> best) {
  if (keep_last == 0) return 0;
  int64_t kept = 0, removed = 0;
  for (const CheckpointName& name : names_in(output_dir + "/checkpoints")) {
    if (!name.counts()) continue;
    const std::optional<CheckpointLabel> label = label_of(name.path);
    if (!label || !lineage.contains(label->lineage.id, name.step)) continue;
    const bool stays = kept < keep_last;
    if (!label->end) ++kept;
    if (stays || name.step == best || (keep_every > 0 && name.step % keep_every == 0)) continue;
    remove_checkpoint(name);
    ++removed;
  }
  return removed;
}

}  // namespace dstrain
