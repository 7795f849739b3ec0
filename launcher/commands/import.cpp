// dstrain import: weights that PyTorch or DeepSpeed has saved become a folder that --model opens. No code of theirs is run,
// and the model is never in memory.
#include <fmt/format.h>

#include <memory>
#include <optional>
#include <vector>

#include "launcher/commands/commands.h"
#include "launcher/export/model_folder.h"
#include "launcher/import/import_source.h"
#include "launcher/process/failure.h"
#include "runtime/config/family/family.h"
#include "runtime/config/read/config_json.h"
#include "runtime/config/read/model_source.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/files/input_file.h"
#include "runtime/core/log/log.h"
#include "runtime/core/text.h"
#include "runtime/engine/files/model_directory.h"
#include "runtime/storage/disk/free_space.h"
#include "runtime/storage/foreign/optimizer_folder.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

constexpr int64_t kLargestDescription = int64_t{64} << 20;

// Returns the text of the config.json that is written; empty: none.
std::string config_text(const ImportSource& source) {
  if (source.folder.empty()) return {};
  const std::string path = fmt::format("{}/{}", source.folder, kConfigJson);
  std::string text = read_input_file(path, "the model's configuration", kLargestDescription);
  return source.is_f32 ? with_dtype_of_files(text, DType::f32, path) : text;
}

std::string optimizer_folder(const std::string& output) {
  return fmt::format("{}/{}", output, kOptimizerFolder);
}

// The files of an optimizer's state under temporary names, which commit() gives their own, that of progress last.
class OptimizerFiles {
 public:
  OptimizerFiles(const DeepSpeedState& state, const std::string& folder) : folder_(folder) {
    for (const auto& [slot, tensors] : state.slots)
      write_weights(tensors, *files_.emplace_back(std::make_unique<NewFile>(
                                 fmt::format("{}/{}.safetensors", folder, slot))));
    const std::string progress = progress_json({state.steps, state.skipped, state.samples});
    NewFile& file = *files_.emplace_back(
        std::make_unique<NewFile>(fmt::format("{}/{}", folder, kProgressFile)));
    file.write_at(progress.data(), std::ssize(progress), 0);
    file.complete();
  }
  void commit() {
    for (const auto& file : files_) file->commit();
  }

 private:
  NewFolder folder_;
  std::vector<std::unique_ptr<NewFile>> files_;
};

int64_t bytes_of(const ImportSource& source) {
  int64_t bytes = bytes_of(source.weights);
  if (source.optimizer)
    for (const auto& [slot, tensors] : source.optimizer->slots) bytes += bytes_of(tensors);
  return bytes;
}

// Writes the weights, the optimizer's state and the configuration under temporary names, removes the model that is replaced,
// and puts the new one in place, its configuration last.
void write_model(const ImportSource& source, const std::string& output, bool overwrite) {
  const std::string text = config_text(source), state = optimizer_folder(output);
  NewFile weights(fmt::format("{}/{}", output, kWeightsName));
  write_weights(source.weights, weights);
  std::optional<OptimizerFiles> optimizer;
  if (source.optimizer) optimizer.emplace(*source.optimizer, state);
  std::optional<NewFile> config;
  if (!text.empty()) {
    config.emplace(fmt::format("{}/{}", output, kConfigJson));
    config->write_at(text.data(), std::ssize(text), 0);
    config->complete();
  }
  const OtherFiles others = overwrite ? OtherFiles::removed : OtherFiles::stay;
  if (overwrite) {
    remove_model(output);
    remove_optimizer_folder(state);
  }
  copy_model_files(source.folder, output, others);
  if (optimizer) optimizer->commit();
  weights.commit();
  if (config) config->commit();
}

}  // namespace

int run_import(const ImportArguments& arguments) {
  check_not_source(arguments.output, arguments.path, "imported");
  check_model_folder(arguments.output, arguments.overwrite);
  const ImportSource source = read_import_source(arguments);
  check_not_source(arguments.output, source.folder, "imported");
  for (const std::string& note : source.weights.notes) log::warn("{}", note);
  const NewFolder folder(arguments.output);
  const int64_t bytes = bytes_of(source);
  const std::string lack =
      lack_of_space("the import", bytes, free_bytes(arguments.output), arguments.output);
  if (!lack.empty())
    fail_user("{}: make room there, or name another directory with --output", lack);
  write_model(source, arguments.output, arguments.overwrite);
  print_result(fmt::format("{}: {}, {}\n", arguments.output,
                           counted(std::ssize(source.weights.tensors), "tensor"),
                           bytes_text(static_cast<double>(bytes))));
  if (source.optimizer)
    print_result(fmt::format("{}: the optimizer's state after {}\n",
                             optimizer_folder(arguments.output),
                             counted(source.optimizer->steps, "step")));
  return 0;
}

}  // namespace dstrain
