#include "launcher/import/import_source.h"

#include <fmt/format.h>

#include <filesystem>
#include <system_error>

#include "runtime/config/family/family.h"
#include "runtime/config/read/model_source.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/hub_folder.h"
#include "runtime/storage/foreign/deepspeed_files.h"
#include "runtime/storage/foreign/deepspeed_weights.h"
#include "runtime/storage/foreign/state_dict.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTorchWeights = "pytorch_model.bin",
                           kTorchIndex = "pytorch_model.bin.index.json";

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

void refuse_key(const ImportArguments& arguments) {
  if (!arguments.key.empty())
    fail_user("--key {}: it names a part of one file, and {} is a folder", printable(arguments.key),
              printable(arguments.path));
}

ForeignWeights weights_in_folder(const ImportArguments& arguments) {
  const fs::path folder = arguments.path;
  refuse_key(arguments);
  if (is_there(folder / kTorchWeights))
    return weights_of_file((folder / kTorchWeights).string(), {});
  if (is_there(folder / kTorchIndex)) return weights_of_index((folder / kTorchIndex).string());
  for (const std::string_view name : {kWeightsName, kIndexName})
    if (is_there(folder / name))
      fail_user("{}: the folder has its weights in {}: --model {} takes them as they are",
                printable(arguments.path), name, printable(arguments.path));
  const std::string advice = hub_folder_advice(arguments.path);
  fail_user("{}: {}", printable(arguments.path),
            advice.empty() ? fmt::format("expected {} or {} in the folder, or name a file that "
                                         "torch.save has written",
                                         kTorchWeights, kTorchIndex)
                           : advice);
}

}  // namespace

ImportSource read_import_source(const ImportArguments& arguments) {
  ImportSource source;
  std::error_code none;
  const fs::path path = arguments.path;
  const bool is_folder = fs::is_directory(path, none);
  fs::path folder = is_folder ? path : path.has_parent_path() ? path.parent_path() : ".";
  if (is_folder && is_deepspeed_folder(arguments.path)) {
    refuse_key(arguments);
    const DeepSpeedFiles files = find_deepspeed_files(arguments.path, arguments.tag);
    source.weights = weights_of_deepspeed(files);
    source.is_f32 = true;
    if (arguments.optimizer_state) source.optimizer = state_of_deepspeed(files);
    // That of a checkpoint lies in the folder of its run.
    if (!is_there(path / kConfigJson) && is_there(path / ".." / kConfigJson)) folder = path / "..";
  } else if (!arguments.tag.empty()) {
    fail_user("--tag {}: {} is no folder of DeepSpeed's checkpoints", printable(arguments.tag),
              printable(arguments.path));
  } else if (is_folder) {
    source.weights = weights_in_folder(arguments);
  } else if (arguments.path.ends_with(".safetensors")) {
    fail_user("{}: --init_weights takes a file of safetensors as it is, and --model its folder",
              printable(arguments.path));
  } else if (path.filename() == kTorchIndex) {
    refuse_key(arguments);
    source.weights = weights_of_index(arguments.path);
  } else {
    source.weights = weights_of_file(arguments.path, arguments.key);
  }
  if (arguments.optimizer_state && !source.optimizer)
    fail_user("--optimizer_state: {} is no checkpoint of DeepSpeed's, whose state is read",
              printable(arguments.path));
  if (is_there(folder / kConfigJson)) source.folder = folder.string();
  // Readers of transformers' models take names without "model.", and with it; those of others have no rule.
  // The same holds for the two names of one weight.
  if (!arguments.keep_names) take_off_prefixes(source.weights, source.folder.empty());
  if (!arguments.keep_names && source.folder.empty()) leave_out_second_names(source.weights);
  check_names(source.weights, arguments.path);
  if (!source.optimizer) return source;
  for (auto& [slot, tensors] : source.optimizer->slots) {
    if (!arguments.keep_names) take_off_prefixes(tensors, source.folder.empty());
    check_names(tensors, fmt::format("{}: {}", arguments.path, slot));
  }
  return source;
}

}  // namespace dstrain
