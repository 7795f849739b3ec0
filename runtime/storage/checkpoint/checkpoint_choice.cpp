#include "runtime/storage/checkpoint/checkpoint_choice.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "runtime/core/error.h"
#include "runtime/storage/checkpoint/checkpoint_places.h"
#include "runtime/storage/checkpoint/lineage.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using Kind = CheckpointName::Kind;

// Returns the folder of checkpoints of `dir`, which is an output directory or that folder itself.
std::string root_of(const std::string& dir) {
  return is_directory(dir + "/checkpoints") ? dir + "/checkpoints" : dir;
}

// Finds the newest checkpoint of a folder's lineage, and collects why newer ones were passed over.
class Choice {
 public:
  Choice(std::string root, const DamagedCheckpoints& damaged)
      : root_(std::move(root)), damaged_(damaged), lineage_(read_lineage(root_)) {}

  FoundCheckpoint make() {
    for (const CheckpointName& name : names_in(root_)) {
      if (name.kind == Kind::abandoned) {
        abandoned_.push_back(last_name(name.path));
      } else if (name.kind == Kind::building || !name.complete) {
        incomplete_.push_back(last_name(name.path));
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
      if (!lineage_ || lineage_->contains(manifest.label.lineage.id, name.step)) return manifest;
      pass_over(name, "it belongs to another run, or to a branch that this run did not continue");
    } catch (const UserError& e) {
      pass_over(name, e.what());
    }
    return std::nullopt;
  }

  void pass_over(const CheckpointName& name, const std::string& why) {
    passed_over_.push_back(fmt::format("{}: {}", last_name(name.path), why));
  }

  [[noreturn]] void fail() const {
    if (passed_over_.size() > incomplete_.size())
      fail_user("--resume: no checkpoint in {} can be taken: {}", root_,
                fmt::join(passed_over_, "; "));
    if (!incomplete_.empty())
      fail_user(
          "--resume: there is no complete checkpoint in {}; {} lack {}: saving was interrupted",
          root_, fmt::join(incomplete_, ", "), kManifestName);
    if (!abandoned_.empty())
      fail_user(
          "--resume: no checkpoint in {} belongs to its lineage, only abandoned ones ({}): name "
          "one to "
          "continue from it",
          root_, fmt::join(abandoned_, ", "));
    fail_user(
        "--resume: there is no checkpoint in {}; give the output directory of a run that has saved "
        "one (dstrain.save_last, save_interval)",
        root_);
  }

  std::string root_;
  const DamagedCheckpoints& damaged_;
  std::optional<Lineage> lineage_;
  std::vector<std::string> passed_over_, incomplete_, abandoned_;
};

}  // namespace

CheckpointInfo FoundCheckpoint::info() const {
  return {.dir = dir,
          .ranks = static_cast<int>(manifest.files.size()),
          .label = manifest.label,
          .passed_over = passed_over};
}

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

}  // namespace dstrain
