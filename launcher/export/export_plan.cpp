#include "launcher/export/export_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>
#include <variant>

#include "launcher/export/model_folder.h"
#include "launcher/input/name_patterns.h"
#include "runtime/config/family/family.h"
#include "runtime/config/load.h"
#include "runtime/config/read/config_json.h"
#include "runtime/config/read/model_source.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/files/input_file.h"
#include "runtime/core/log/log.h"
#include "runtime/data/tokenizer/tokenizer_directory.h"
#include "runtime/engine/files/adapter_files.h"
#include "runtime/engine/files/base_file.h"
#include "runtime/engine/files/model_directory.h"
#include "runtime/storage/checkpoint/checkpoint_places.h"
#include "runtime/storage/weight_layout.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kLargestDescription = int64_t{64} << 20;

using Dtypes = std::map<std::string, DType>;

bool is_there(const fs::path& path) {
  std::error_code none;
  return fs::exists(path, none);
}

// Returns the folder that is written where --output names none.
std::string usual_output(const WeightsSource& place, const ExportArguments& arguments) {
  std::string name = arguments.peft           ? "peft"
                     : arguments.gguf         ? "gguf"
                     : arguments.hugging_face ? "hf"
                                              : "safetensors";
  if (!place.checkpoint.empty()) name += "_" + last_name(place.checkpoint);
  return (fs::path(place.run_dir) / "export" / name).string();
}

// Throws UserError if the export would replace files of something else.
void check_output(const std::string& output, const WrittenRun& run,
                  const ExportArguments& arguments) {
  for (const std::string& source :
       {run.place.run_dir, run.place.checkpoint, run.job.model_directory})
    check_not_source(output, source, "exported");
  check_model_folder(output, arguments.overwrite,
                     arguments.gguf ? ModelFiles::gguf : ModelFiles::safetensors);
}

// Throws UserError if the run has no adapters where the arguments want some, or some beside its model and no word on them.
void check_adapters(const ExportArguments& arguments, const WrittenRun& run) {
  if ((arguments.merge || arguments.peft) && !run.lora)
    fail_user("dstrain export {}: {}: the run has no adapters (dstrain.lora)", arguments.run,
              arguments.peft ? "--format peft" : "--merge");
  if (!arguments.merge && !arguments.peft && run.job.model.fine_tuning().lora)
    fail_user(
        "dstrain export {}: the run has adapters beside its model: --merge writes the model with "
        "them in its weights, --format peft the adapters alone",
        arguments.run);
}

// Returns the file with the adapters that a run has left; empty: its checkpoint has them.
std::string adapters_file_of(const WrittenRun& run) {
  if (!run.place.checkpoint.empty()) return "";
  return fmt::format("{}/{}", adapter_folder(run.place.run_dir), kAdapterWeights);
}

ModelConfig without_adapters(ModelConfig model) {
  FineTuning tuning = model.fine_tuning();
  tuning.lora.reset();
  model.set_fine_tuning(std::move(tuning));
  return model;
}

// Plans to add a run's adapters to the weights that they are trained for. A checkpoint has both, but for weights in packed
// blocks, which are made again of what the run made them of.
void plan_merge(ExportPlan& plan, const std::string& named) {
  Job& job = plan.run.job;
  AdaptedWeights split = split_adapters(weights_of(job.model), job.model.fine_tuning());
  plan.own = plan.written = std::move(split.base);
  plan.merged = std::move(split.adapters);
  plan.lora = *job.model.fine_tuning().lora;
  plan.packed = packed_weights_of(job.model);
  plan.adapters_file = adapters_file_of(plan.run);
  plan.adapters_foreign = adapter_names_of(job.model);
  if (plan.adapters_file.empty() && plan.packed.empty()) {
    plan.weights_file.clear();
  } else {
    plan.weights_file = base_file(job, "dstrain export " + named);
    if (plan.weights_file.empty())
      fail_user(
          "dstrain export {}: --merge: the adapters are trained for weights that the run made "
          "afresh, and that are in no file: a checkpoint of a run without dstrain.lora.base has "
          "them, and dstrain.lora.merge lets a run write the model with them",
          named);
    plan.foreign = names_in_base(job, plan.weights_file);
  }
  job.model = without_adapters(job.model);
}

// Plans to write a run's adapters alone, as PEFT's files.
void plan_peft(ExportPlan& plan) {
  Job& job = plan.run.job;
  FineTuning tuning = job.model.fine_tuning();
  tuning.lora = plan.run.lora;
  job.model.set_fine_tuning(tuning);
  const StateRegister all = weights_of(job.model);
  plan.own = plan.written = with_shared_head(split_adapters(all, tuning).adapters, job.model);
  // A checkpoint has the table alone.
  if (const std::string_view table = tied_table_of(job.model); !table.empty())
    plan.own.back().name = table;
  plan.adapter_config = adapter_config_json(job, all);
  plan.weights_file = adapters_file_of(plan.run);
  plan.weights_name = kAdapterWeights;
  plan.format = {.as_package = true, .shard_bytes = std::numeric_limits<int64_t>::max()};
}

// Returns the config.json that a run on one of transformers' models writes: its own, or where it has left adapters alone,
// what its settings make of that of the model.
std::string config_json_of_run(const ExportPlan& plan, const ModelRegistry& models) {
  const std::string& folder = plan.run.place.run_dir;
  const std::string file = fmt::format("{}/{}", folder, kConfigJson);
  if (plan.merged.empty() || is_there(file))
    return read_input_file(file, "the model's configuration", kLargestDescription);
  ConfigRequest request;
  request.models = &models;
  request.count_ids = ids_of_tokenizer;
  request.path = fmt::format("{}/{}", folder, kResolvedConfig);
  request.ranks = plan.run.job.ranks;
  return load_config(request).config_json;
}

// Returns the dtypes of tensors that a run on one of transformers' models keeps: those of the weights that it has written,
// or that it will write as the model's folder has them.
Dtypes kept_dtypes(const WrittenRun& run) {
  const Job& job = run.job;
  if (job.save.dtype) return {};
  Dtypes kept = dtypes_in_directory(run.place.run_dir, job.model);
  if (kept.empty() && !job.model_directory.empty())
    kept = dtypes_in_directory(job.model_directory, job.model);
  return kept;
}

// Tells that fp32 is asked of weights that the run has rounded.
void warn_of_rounded(const ExportPlan& plan) {
  const WeightsSource& place = plan.run.place;
  if (!place.checkpoint.empty()) return;
  const Dtypes dtypes = dtypes_in_directory(place.run_dir, plan.run.job.model);
  if (std::ranges::all_of(dtypes, [](const auto& d) { return d.second == DType::f32; })) return;
  log::warn(
      "the weights in {0} are rounded to 16 bits, and so are those in fp32: the run's checkpoints "
      "have the masters (dstrain export {0}/checkpoints/step_N)",
      place.run_dir);
}

void plan_safetensors(ExportPlan& plan) {
  plan.format = {.as_package = plan.run.job.model.family().hugging_face.has_value(),
                 .shard_bytes = std::numeric_limits<int64_t>::max()};
}

// Weights have the dtypes of the run's own.
void keep_dtypes(ExportPlan& plan) {
  plan.format.dtype = [kept = kept_dtypes(plan.run), save = plan.run.job.save](
                          const std::string& tensor) { return saved_dtype(tensor, kept, save); };
}

// The folder of a run on one of transformers' models.
void plan_own_family(ExportPlan& plan, std::optional<DType> dtype, const ModelRegistry& models) {
  const std::string file = fmt::format("{}/{}", plan.run.place.run_dir, kConfigJson);
  plan.config_json = config_json_of_run(plan, models);
  if (dtype) plan.config_json = with_dtype_of_files(plan.config_json, *dtype, file);
  plan.copies_files = true;
  if (!dtype) keep_dtypes(plan);
}

// The folder of a model of transformers' that computes the same.
void plan_other_family(ExportPlan& plan, std::optional<DType> dtype) {
  const ModelConfig& model = plan.run.job.model;
  const ModelFamily& family = model.family();
  const std::string advice = "--format safetensors writes its weights by their own names";
  if (!family.as_transformers)
    fail_user("--format hf: transformers have no model that computes what a {} does: {}",
              family.title, advice);
  auto other = family.as_transformers(model);
  if (const auto* problem = std::get_if<KeyProblem>(&other))
    fail_user("--format hf: {}: {}; {}", problem->keys.front(), problem->message, advice);
  const auto& [theirs, weights, unset] = std::get<TransformersModel>(other);
  const SaveConfig& save = plan.run.job.save;
  const DType in_files = dtype.value_or(save.dtype.value_or(save.usual));
  plan.config_json = config_json_of(theirs, in_files, unset);
  plan.written = mapped(plan.own, weights);
  plan.format.dtype = [in_files](const std::string&) { return in_files; };
}

}  // namespace

ExportPlan plan_export(const ExportArguments& arguments, const ModelRegistry& models) {
  ExportPlan plan{.run = read_run(arguments.run, "dstrain export", models)};
  const Job& job = plan.run.job;
  check_adapters(arguments, plan.run);
  plan.output =
      arguments.output.empty() ? usual_output(plan.run.place, arguments) : arguments.output;
  check_output(plan.output, plan.run, arguments);
  plan.foreign = foreign_names_of(job.model);
  plan.format = {.as_package = true, .shard_bytes = job.save.shard_bytes};
  if (arguments.peft) {
    plan_peft(plan);
  } else if (job.model.fine_tuning().lora) {
    plan_merge(plan, arguments.run);
  } else {
    plan.own = plan.written = weights_of(job.model);
    if (plan.run.place.checkpoint.empty())
      plan.weights_file =
          directory_weights(plan.run.place.run_dir,
                            fmt::format("{} {}", plan.run.place.option, plan.run.place.run_dir));
  }
  if (arguments.peft) {
    plan.foreign = {};
  } else if (arguments.gguf) {
    if (!arguments.dtype) keep_dtypes(plan);
  } else if (!arguments.hugging_face) {
    plan_safetensors(plan);
  } else if (job.model.family().hugging_face) {
    plan_own_family(plan, arguments.dtype, models);
  } else {
    plan_other_family(plan, arguments.dtype);
  }
  if (arguments.dtype)
    plan.format.dtype = [dtype = *arguments.dtype](const std::string&) { return dtype; };
  const bool in_f32 =
      arguments.dtype ? *arguments.dtype == DType::f32 : !arguments.hugging_face && !arguments.gguf;
  if (in_f32 && !arguments.peft) warn_of_rounded(plan);
  return plan;
}

}  // namespace dstrain
