#include "launcher/input/run_input.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <system_error>

#include "launcher/implementations.h"
#include "launcher/input/defaults.h"
#include "launcher/input/name_patterns.h"
#include "launcher/input/output_folder.h"
#include "runtime/config/family/family.h"
#include "runtime/config/read/model_source.h"
#include "runtime/config/read/run_folder.h"
#include "runtime/config/report/resolved_config.h"
#include "runtime/config/solve/solve.h"
#include "runtime/config/solve/solve_axes.h"
#include "runtime/config/text.h"
#include "runtime/core/devices/cuda_device.h"
#include "runtime/core/error.h"
#include "runtime/core/files/atomic_file.h"
#include "runtime/core/files/input_file.h"
#include "runtime/core/log/log.h"
#include "runtime/core/text.h"
#include "runtime/data/open_dataset.h"
#include "runtime/engine/files/adapter_files.h"
#include "runtime/engine/files/model_directory.h"
#include "runtime/engine/files/unread_head.h"
#include "runtime/engine/resume/resume.h"
#include "runtime/optim/optimizer_rules.h"
#include "runtime/plan/settings/fit.h"
#include "runtime/storage/checkpoint/checkpoint_choice.h"
#include "runtime/storage/disk/free_space.h"
#include "runtime/storage/disk/swap_files.h"
#include "runtime/storage/foreign/optimizer_folder.h"
#include "runtime/storage/output_file.h"
#include "runtime/storage/weights.h"
#include "runtime/storage/weights/weight_files.h"

namespace dstrain {
namespace {

constexpr int64_t kLargestConfig = int64_t{64} << 20;
constexpr const char* kMicroBatchKey = "train_micro_batch_size_per_gpu";

void set_micro_batch(Job& job, int64_t micro_batch) {
  job.batch.micro_batch = micro_batch;
  job.batch.train_batch = micro_batch * job.batch.accumulation * job.data_ranks();
}

// Halves the micro-batch until the plan fits. A model that cannot fit with any micro-batch keeps its own.
void halve_to_fit(Job& job, const RankMemory& offered) {
  const int64_t own = job.batch.micro_batch;
  bool fitting = fits(job, offered);
  while (!fitting && job.batch.micro_batch > 1) {
    set_micro_batch(job, job.batch.micro_batch / 2);
    fitting = divides_among_ranks(job) && fits(job, offered);
  }
  if (!fitting) set_micro_batch(job, own);
}

// Returns the micro-batch of the run to resume, which run_folder_of() finds. 0 if it is unknown.
int64_t micro_batch_before(const std::string& resume, const ModelRegistry& models) {
  if (resume.empty()) return 0;
  const std::string file = fmt::format("{}/{}", run_folder_of(resume), kResolvedConfig);
  if (!std::filesystem::exists(file)) return 0;
  return job_from_resolved(read_input_file(file, "the resolved configuration", kLargestConfig),
                           models, file)
      .batch.micro_batch;
}

// Checks that the trace file can be written, which happens only after the last step.
void check_trace_file(const std::string& path) {
  if (path.empty()) return;
  if (std::filesystem::is_directory(path))
    fail_user("dstrain.trace {} is a directory: name a file", path);
  try {
    const NewFile probe(file_to_replace(path));  // leaves nothing behind
  } catch (const RunError& e) {
    fail_user("dstrain.trace: {} (--set dstrain.trace=FILE names another one)", e.what());
  }
}

// Throws UserError if the run would replace the files of its own model, or weights that its adapters belong to.
void refuse_model_directory(const Job& job) {
  const auto is_output = [&job](const std::filesystem::path& folder) {
    std::error_code error;
    return std::filesystem::equivalent(folder, job.output, error) && !error;
  };
  if (!job.model_directory.empty() && is_output(job.model_directory))
    fail_user(
        "--output {}: the folder is that of the model, whose weights the run would replace: name "
        "another one",
        job.output);
  const std::filesystem::path weights = job.init_weights;
  if (job.model.fine_tuning().lora && !weights.empty() &&
      is_output(weights.has_parent_path() ? weights.parent_path() : "."))
    fail_user(
        "--output {}: the folder has the weights that the adapters are trained for ({}), and the "
        "run would replace them: name another one",
        job.output, job.init_weights);
}

// Returns what a weight file has of a parameter first.
WeightPart first_part(const ModelConfig& model, const std::string& parameter) {
  for (const WeightEntry& entry : weight_map_of(model))
    if (entry.parameter == parameter) return entry.parts.front();
  return {.tensor = parameter};
}

// Returns the folder of transformers' files that has the weights file; empty: none, or it is the model's.
std::string foreign_folder(const Job& job) {
  namespace fs = std::filesystem;
  std::error_code none;
  const fs::path folder = fs::path(job.init_weights).parent_path();
  const bool has_config = fs::exists(folder / kConfigJson, none);
  return has_config && folder != job.model_directory ? folder.string() : "";
}

// Checks the file of the initial weights. Its vocabulary may be that of another text, or its model another one.
void check_initial_weights(const Job& job) try {
  check_weights(job.init_weights,
                split_adapters(weights_of(job.model), job.model.fine_tuning()).base,
                foreign_names_of(job.model));
} catch (const UserError& e) {
  if (const std::string folder = foreign_folder(job); !folder.empty())
    fail_user("{}\n  --model {} takes the model that these are the weights of", e.what(), folder);
  const WeightFiles files(job.init_weights, foreign_names_of(job.model));
  const std::optional<TokenTable> own = job.model.measures().token_table;
  const WeightPart part = own ? first_part(job.model, own->name) : WeightPart{};
  const std::optional<WeightFiles::Found> table = own ? files.find(part.tensor) : std::nullopt;
  if (!table || table->tensor->shape.size() != 2 ||
      table->tensor->shape[part.transposed ? 1 : 0] == own->rows || !job.data.vocab.empty())
    throw;
  fail_user(
      "{}\n  --vocab RUN reads the text with the vocabulary of the run that has these weights",
      e.what());
}

// Checks the adapters that the run begins with.
void check_initial_adapters(const Job& job) {
  if (job.adapters.init.empty()) return;
  check_adapter(job.adapters.init, job.model);
  check_adapter_weights(fmt::format("{}/{}", adapter_folder(job.adapters.init), kAdapterWeights),
                        job,
                        split_adapters(weights_of(job.model), job.model.fine_tuning()).adapters);
}

// Checks that the state that the optimizer begins with is there, of all parameters that are trained.
void check_initial_state(const Job& job) {
  if (job.optimizer_state.empty()) return;
  read_progress(job.optimizer_state);
  StateRegister trained = weights_of(job.model);
  std::erase_if(trained, [&job](const StateEntry& entry) {
    return job.model.fine_tuning().freezes(entry.name);
  });
  const ForeignNames names = names_of_state(job.model);
  for (const SlotRule& slot : state_slots(job.optimizer))
    check_weights(file_of_slot(job.optimizer_state, slot.name), trained, names);
}

// Returns the file of the job's first weights, or their index. The model of a file takes those of a folder by their names alone,
// so they may be divided over several files.
std::string first_weights(const Job& job, bool is_option) {
  const bool is_fixed = job.model.family().is_fixed;
  if (!is_option && !is_fixed)
    return directory_weights(job.init_weights, "--model " + job.init_weights);
  std::error_code none;
  const std::filesystem::path folder(job.init_weights), index = folder / kIndexName;
  const bool divided =
      std::filesystem::exists(index, none) && !std::filesystem::exists(folder / kWeightsName, none);
  return is_fixed && divided ? index.string() : weights_file(job.init_weights);
}

}  // namespace

void settle_device(Job& job, RunsWhere where) {
  if (job.device == DeviceChoice::automatic) {
    job.device = cuda_device_count() > 0 ? DeviceChoice::cuda : DeviceChoice::cpu;
    if (is_gpu(job.device) && job.expert_ranks > 1)  // a device that is given is judged before
      fail_user(
          "expert_parallel.autoep_size: rows of experts travel between processors alone, and this "
          "machine has a GPU: use --device cpu, or 1");
  }
  if (where != RunsWhere::nowhere && job.device == DeviceChoice::cpu && job.graph == GraphMode::on)
    fail_user("dstrain.cuda_graph: the CPU has no graphs: use \"auto\" or --device cuda");
  if (!is_gpu(job.device) || cuda_device_count() > 0) return;
  if (has_cuda_backend() && where != RunsWhere::here) return;
  throw UserError(why_no_cuda());
}

void settle_ranks(ConfigRequest& request) {
  if (request.ranks) return;
  if (request.recorded_ranks) {
    request.ranks = request.recorded_ranks;
    request.ranks_origin = request.path;
    return;
  }
  const DeviceChoice device = device_named(request.device.value_or("auto"));
  const int gpus = takes_gpu(device) ? cuda_device_count() : 0;
  request.ranks = std::max(gpus, 1);
  request.ranks_origin = gpus > 0 ? "the GPUs of this machine" : "no --num_gpus";
}

void settle_batch(ConfigRequest& request, LoadedConfig& loaded, std::optional<RankMemory> offered) {
  if (!loaded.default_batch) return;
  Job job = loaded.job;
  std::string why =
      fmt::format("Hugging Face's default {}, halved until the plan fits", job.batch.micro_batch);
  if (const int64_t before = micro_batch_before(job.resume, *request.models); before > 0) {
    job.batch.micro_batch = before;
    why = "as in the run that is resumed";
  } else if (offered && !is_gpu(job.device)) {
    halve_to_fit(job, *offered);
  }
  if (job.batch.micro_batch == loaded.job.batch.micro_batch) return;
  apply_micro_batch(loaded, job.batch.micro_batch, why);
  request.sets.push_back(fmt::format("{}={}", kMicroBatchKey, job.batch.micro_batch));
}

bool settle_to_fit(ConfigRequest& request, LoadedConfig& loaded,
                   std::optional<RankMemory> offered) {
  if (loaded.default_batch) {
    settle_open(request, loaded, offered, Pieces::stay_open);
    settle_batch(request, loaded, offered);
  }
  return settle_open(request, loaded, offered, Pieces::settle);
}

void apply_micro_batch(LoadedConfig& loaded, int64_t micro_batch, const std::string& why) {
  set_micro_batch(loaded.job, micro_batch);
  loaded.settle(kMicroBatchKey, std::to_string(micro_batch), why);
  loaded.settle("train_batch_size", std::to_string(loaded.job.batch.train_batch), why);
}

void settle_steps(const ConfigRequest& request, LoadedConfig& loaded, const Dataset& dataset) {
  if (!request.epochs) return;
  Job& job = loaded.job;
  if (!job.model.family().reads_files())
    fail_user("--epochs: the {} makes its own samples, which never end: give --steps",
              job.model.family().title);
  // The quotient is exact but for rounding, which must not add a step.
  constexpr double rounding = 1e-12;
  const int64_t samples = dataset.samples(Split::train), batch = job.batch.train_batch;
  const double exact = *request.epochs * static_cast<double>(samples) / static_cast<double>(batch);
  ConfigRequest with_steps = request;
  with_steps.epoch_steps =
      std::max<int64_t>(1, static_cast<int64_t>(std::ceil(exact * (1 - rounding))));
  // What depends on the steps is the schedule alone, and what warnings say.
  LoadedConfig again = load_config(with_steps);
  job.steps = again.job.steps;
  job.schedule = again.job.schedule;
  loaded.warnings = std::move(again.warnings);
  loaded.settle("dstrain.steps", std::to_string(job.steps),
                fmt::format("--epochs {:g} of {} in batches of {}", *request.epochs,
                            counted(samples, "sample"), batch));
  constexpr std::string_view total = "scheduler.params.total_num_steps";
  const auto setting = std::ranges::find(again.settings, total, &Setting::key);
  const auto before = std::ranges::find(loaded.settings, total, &Setting::key);
  if (setting != again.settings.end() && before != loaded.settings.end()) *before = *setting;
}

RunInput read_input(const ConfigRequest& request, RunsWhere where, CacheUse cache) {
  RunInput input{load_config(request), nullptr, {}};
  Job& job = input.loaded.job;
  settle_device(job, where);
  input.output_line = settle_output(input.loaded).line;
  if (!job.init_weights.empty())
    job.init_weights = first_weights(job, request.init_weights.has_value());
  check_name_patterns(input.loaded);
  input.texts = use_token_cache(job, cache, [&job] {
    refuse_model_directory(job);
    check_overwriting(job);
    check_output_directory(job.output);
  });
  input.dataset = open_dataset(job);
  if (job.model.family().reads_tokens() && job.model.vocabulary() == 0)
    job.model.set_vocabulary(input.dataset->vocabulary().size);
  settle_steps(request, input.loaded, *input.dataset);
  if (job.ranks > 1) input.facts = input_facts(job, *input.dataset);
  return input;
}

void check_surroundings(const RunInput& input, int ranks_here, RankProcesses processes, bool fits) {
  const Job& job = input.job();
  if (!job.resume.empty()) {
    const CheckpointInfo checkpoint = find_checkpoint(job.resume);
    const Job here = job_of_host(job, ranks_here);  // groups by host are as many ranks as it has
    for (const std::string& line : changes_since(checkpoint, here, run_facts(here, *input.dataset)))
      log::warn("--resume: {}", line);
  } else {
    if (!job.init_weights.empty()) {
      check_initial_weights(job);
      if (const int64_t stored = job.model.stored_vocabulary(); stored > 0)
        log::info(
            "vocabulary: {} ids; rows {} to {} of its tables are new and begin as the mean of "
            "those in {}",
            job.model.vocabulary(), stored, job.model.vocabulary() - 1, job.init_weights);
      check_unread_head(job.init_weights, job.model);
    }
    check_initial_adapters(job);
    check_initial_state(job);
  }
  if (!job.model_directory.empty()) check_model_files(job.model_directory);
  refuse_model_directory(job);
  check_overwriting(job);
  if (ranks_here > 0 && !fits) check_memory_here(job, ranks_here, processes);
  if (ranks_here > 0) check_disks_here(job, ranks_here);
  check_output_directory(job.output);
  check_own_files(job);
  check_trace_file(job.trace);
}

void check_disks_here(const Job& asked, int ranks_here) {
  const Job job = job_of_host(asked, ranks_here);
  const std::vector<std::string>& paths = job.offload.nvme_paths;
  if (!job.offload.uses_disk()) return;
  const int64_t bytes = planned_memory(job, plan_inputs(job, ranks_here)).disk * ranks_here;
  std::map<dev_t, int64_t> needed;  // of each file system
  for (const std::string& path : paths) {
    const std::string there = existing_swap_directory(path);
    struct stat status {};
    if (::stat(there.c_str(), &status) != 0) continue;  // the disk store says why
    const int64_t each = bytes / static_cast<int64_t>(paths.size());
    const int64_t all = needed[status.st_dev] += each;
    const std::string lack =
        lack_of_space("what is offloaded to nvme", all, free_bytes(there), path);
    if (!lack.empty())
      fail_user(
          "{}: free space there, or name a larger drive in nvme_path of the section that offloads",
          lack);
    const std::string drive = drive_of(there);
    log::info("nvme: {} of {} in {}{}{}", bytes_text(static_cast<double>(each)),
              counted(ranks_here, "rank"), path, drive.empty() ? "" : " on ", drive);
  }
}

}  // namespace dstrain
