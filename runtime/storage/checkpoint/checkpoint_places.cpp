#include "runtime/storage/checkpoint/checkpoint_places.h"

#include <fmt/format.h>
#include <stdio.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <optional>
#include <system_error>

#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/files/input_file.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;
using Kind = CheckpointName::Kind;

constexpr std::string_view kPrefix = "step_";
constexpr std::string_view kAbandoned = ".abandoned-";

bool has_manifest(const std::string& dir) {
  std::error_code error;
  return fs::is_regular_file(fmt::format("{}/{}", dir, kManifestName), error);
}

// Parses a directory name; returns nothing if it is not that of a checkpoint.
std::optional<CheckpointName> parse_name(std::string_view name) {
  if (!name.starts_with(kPrefix)) return std::nullopt;
  CheckpointName found;
  const char* end = name.data() + name.size();
  const auto [rest, error] = std::from_chars(name.data() + kPrefix.size(), end, found.step);
  if (error != std::errc() || found.step < 0) return std::nullopt;
  const std::string_view suffix(rest, static_cast<size_t>(end - rest));
  if (suffix == ".tmp") {
    found.kind = Kind::building;
  } else if (suffix == ".old") {
    found.kind = Kind::replaced;
  } else if (suffix.starts_with(kAbandoned)) {
    found.kind = Kind::abandoned;
  } else if (!suffix.empty()) {
    return std::nullopt;
  }
  return found;
}

}  // namespace

CheckpointPlace::CheckpointPlace(const std::string& output_dir, int64_t step)
    : root(output_dir + "/checkpoints"),
      done(fmt::format("{}/{}{}", root, kPrefix, step)),
      building(done + ".tmp"),
      replaced(done + ".old") {}

std::vector<CheckpointName> names_in(const std::string& root) {
  std::vector<CheckpointName> names;
  if (!is_directory(root)) return names;
  std::error_code error;
  for (fs::directory_iterator it(root, error), end; !error && it != end; it.increment(error)) {
    std::optional<CheckpointName> name = parse_name(it->path().filename().string());
    if (!name) continue;
    name->path = fmt::format("{}/{}", root, it->path().filename().string());
    name->complete = has_manifest(name->path);
    names.push_back(std::move(*name));
  }
  if (error) fail_user("cannot read the directory {}: {}", root, error.message());
  std::ranges::sort(names, [](const CheckpointName& a, const CheckpointName& b) {
    return a.step != b.step ? a.step > b.step : a.path < b.path;
  });
  return names;
}

void put_in_place(const CheckpointPlace& place) {
  sync_directory(place.building);
  if (is_directory(place.done)) {
    remove_tree(place.replaced);
    rename_checkpoint(place.done, place.replaced);
  }
  rename_checkpoint(place.building, place.done);
  sync_directory(place.root);
  remove_tree(place.replaced);
}

void remove_leftovers(const std::string& root) {
  for (const CheckpointName& name : names_in(root))
    if (name.kind == Kind::building ||
        (name.kind == Kind::replaced &&
         has_manifest(fmt::format("{}/{}{}", root, kPrefix, name.step))))
      remove_tree(name.path);
}

std::string rank_stem(int rank) {
  return fmt::format("rank_{:05}", rank);
}

Manifest read_whole_manifest(const std::string& dir) {
  constexpr int64_t most_bytes = int64_t{1} << 30;
  const std::string path = fmt::format("{}/{}", dir, kManifestName);
  Manifest manifest = parse_manifest(read_input_file(path, "the manifest", most_bytes), path);
  for (const CheckpointTensor& tensor : manifest.tensors)
    if (const std::string problem = coverage_error(manifest, tensor); !problem.empty())
      fail_user("{}: {}", path, problem);
  for (const CheckpointFile& file : manifest.files) {
    const InputFile opened(dir + "/" + file.name, "the checkpoint file");
    if (opened.size() != file.bytes)
      fail_user(
          "{} has {} bytes, and {} expects {}: it is cut short or damaged; use another checkpoint",
          opened.path(), opened.size(), kManifestName, file.bytes);
  }
  if (const auto name = parse_name(last_name(dir)); name && name->step != manifest.label.step)
    fail_user("{} holds step {}: it is another checkpoint under this one's name; use its own name",
              dir, manifest.label.step);
  return manifest;
}

std::string last_name(const std::string& path) {
  return fs::path(path + "/").parent_path().filename().string();
}

bool is_checkpoint_name(const std::string& dir) {
  return parse_name(last_name(dir)).has_value();
}

void remove_tree(const std::string& path) {
  std::error_code error;
  fs::remove_all(path, error);
  if (error) fail_run("cannot remove {}: {}", path, error.message());
}

void remove_checkpoint(const CheckpointName& checkpoint) {
  const fs::path root = fs::path(checkpoint.path).parent_path();
  const std::string going = (root / fmt::format("{}{}.tmp", kPrefix, checkpoint.step)).string();
  if (checkpoint.kind != Kind::building) {
    remove_tree(going);
    rename_checkpoint(checkpoint.path, going);
  }
  remove_tree(going);
}

void rename_checkpoint(const std::string& from, const std::string& to) {
  if (::rename(from.c_str(), to.c_str()) != 0)
    fail_run("cannot rename the checkpoint {} to {}: {}", from, to, std::strerror(errno));
}

bool is_directory(const std::string& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

}  // namespace dstrain
