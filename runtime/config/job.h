// Job: what a ds_config.json and the command line ask for, with types, checked, and with defaults filled
// in. All code above the configuration reads the Job and never JSON. The origin of every value is in
// `Settings` (load.h).
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/family/model_config.h"
#include "runtime/config/optimizer_config.h"
#include "runtime/core/devices/device_choice.h"
#include "runtime/core/dtype.h"
#include "runtime/core/fine_tuning/objective.h"
#include "runtime/core/step_rules.h"

namespace dstrain {

// The batch sizes of a run, in samples: train_batch = micro_batch * accumulation * data-parallel ranks.
struct BatchConfig {
  int64_t train_batch = 0;
  int64_t micro_batch = 0;
  int64_t accumulation = 0;
  bool operator==(const BatchConfig&) const = default;
};

// The kind of learning-rate schedule; all but `constant` are DeepSpeed's.
enum class ScheduleKind { constant, lr_range_test, one_cycle, warmup, warmup_decay, warmup_cosine };
// The learning-rate schedule and its constants. Members have DeepSpeed's names; each kind reads its own.
struct ScheduleConfig {
  ScheduleKind kind = ScheduleKind::constant;
  double warmup_min_lr = 0, warmup_max_lr = 1e-3;
  std::optional<double>
      warmup_max_adam_lr{};  // warmup with muon: as adam_lr; absent: warmup_max_lr
  int64_t warmup_num_steps = 1000, total_num_steps = 0;
  bool warmup_linear = false;
  double warmup_min_ratio = 0, cos_min_ratio = 1e-4;
  double range_min_lr = 1e-3, range_step_rate = 1;
  int64_t range_step_size = 2000;
  bool range_staircase = false;
  double cycle_min_lr = 0, cycle_max_lr = 0, decay_lr_rate = 0;
  int64_t cycle_first_step_size = 2000, cycle_second_step_size = 2000;
  int64_t cycle_first_stair_count = 0, cycle_second_stair_count = 0, decay_step_size = 0;
  bool cycle_momentum = true;
  double cycle_min_mom = 0.8, cycle_max_mom = 0.9, decay_mom_rate = 0;
  int64_t last_batch_iteration = -1;  // where the schedule begins; -1: at its first value
  bool operator==(const ScheduleConfig&) const = default;
};

// The format of the data file: auto, char, byte, bin, arrays or images.
enum class DataFormat { automatic, characters, bytes, tokens, arrays, images };
// The ids of a token file without a header that says it: found out from the file, or given.
enum class TokenDtype { automatic, uint16, uint32 };
// How documents become samples: parts of the stream of all tokens; whole documents, several in a sample; or one document
// in a sample, with padding.
enum class Packing { none, pack, pad };
// What becomes of a document that is longer than a sample: its first tokens, nothing, or the end of the run.
enum class TooLong { cut, drop, error };
// Which tokens of JSON lines count in the loss. `usual`: the assistant's of messages, a completion's with a prompt, all of a
// text.
enum class LossOn { usual, assistant, completion, all };
// How samples are made of images, whose values are from 0 to 1 (docs/formats.md, images).
struct ImageConfig {
  std::vector<double> mean{0}, std{1};  // of all channels, or of each one: (value - mean) / std
  int64_t crop = 0;                     // black pixels around an image, of which a part is drawn
  bool flip = false;                    // half of the images are mirrored
  int64_t size = 0;  // of the shorter side, to which images are scaled; 0: they are not
  bool operator==(const ImageConfig&) const = default;
};

// The data files and how samples are taken from them. The tokens of a sample are the model's (ModelConfig::seq_len()).
struct DataConfig {
  std::vector<std::string> paths;  // files, and patterns for files ("data/*.bin")
  std::string val_path;            // a file of its own for validation; empty: the end of the data
  DataFormat format = DataFormat::automatic;
  TokenDtype token_dtype = TokenDtype::automatic;
  // A run, or its vocab.json, with whose vocabulary the text is read; empty: the text's own.
  std::string vocab;
  bool random_order = true;
  double val_fraction = 0.1;  // 0 with val_path
  Packing packing = Packing::none;
  TooLong too_long = TooLong::cut;  // of documents that are packed or padded
  LossOn loss_on = LossOn::usual;
  bool skip_invalid = false;  // leave out JSON lines that are invalid
  // Writes the messages of JSON lines: dstrain's own template by name, or a file; empty: that of the model's folder.
  std::string chat_template = {};
  std::vector<std::string> added_tokens =
      {};                   // behind those of the tokenizer of the model's folder
  ImageConfig images = {};  // of format images
  bool operator==(const DataConfig&) const = default;
};

// When ranks add their gradients: once per step, or after every micro-batch.
enum class ReduceMode { boundary, micro_batch };
// Returns the mode of a ZeRO stage where the configuration has none.
inline ReduceMode usual_reduce(int zero_stage) {
  return zero_stage < 2 ? ReduceMode::boundary : ReduceMode::micro_batch;
}

// How many elements of the parameters may be gathered at stage 3, and for how long, by keys of zero_optimization.
struct GatherLimits {
  int64_t prefetch_elements = 50'000'000;      // stage3_prefetch_bucket_size
  int64_t param_persistence = 100'000;         // stage3_param_persistence_threshold
  int64_t model_persistence = INT64_MAX;       // stage3_model_persistence_threshold
  int64_t max_live_elements = 1'000'000'000;   // stage3_max_live_parameters
  int64_t max_reuse_distance = 1'000'000'000;  // stage3_max_reuse_distance
  bool operator==(const GatherLimits&) const = default;
};

// How the data-parallel ranks are divided into groups of consecutive ranks. At stage 3 each group has all parameters; or
// all ranks together have them, and each group adds quantized gradients before their sums go on to the other groups.
// With post_localSGD each group adds its gradients and updates weights of its own.
struct ShardConfig {
  int ranks = 0;           // in each group; 0: all data-parallel ranks are one group
  bool by_host = false;    // a host's ranks are a group; `ranks` is 0 until hosts are known
  bool parameters = true;  // each group has all, and each of its ranks a part of them
  bool operator==(const ShardConfig&) const = default;
};

// The tensors that ranks send in quantized form at stage 3 (zero_optimization.zero_quantized_*).
struct QuantizeConfig {
  bool weights = false;    // gathered parameters: int8
  bool gradients = false;  // gradients on their way to the sums: int4, once for each of two hops
  // LoCo (zeropp_loco_param): what packing gradients loses is added to those of the next step.
  bool feedback = false;
  float error_beta = 0.8f;     // share of the error that stays when a step's loss is added
  int64_t error_steps = 1024;  // updates after which the error begins at 0 again
  bool operator==(const QuantizeConfig&) const = default;
};

// PyTorch's communication hooks that change what a step sends (dstrain.comm_hook.type).
enum class HookKind { none, power_sgd, batched_power_sgd, post_local_sgd };
// The hook and its constants, which have torch's meaning. Steps are updates: skipped ones do not count.
struct HookConfig {
  HookKind kind = HookKind::none;
  int64_t start = 0;           // steps before it starts, in which gradients are added as they are
  int64_t rank = 1;            // columns of the two factors of a gradient
  double min_compression = 2;  // a gradient is compressed if its factors are so many times smaller
  bool error_feedback = true;  // what the factors lose is added to the next step's gradient
  bool warm_start =
      true;  // a factor goes on from that of the step before; else it is random in each step
  double orthogonal_eps = 0;  // added to the length of a column before a division by it
  int64_t seed = 0;           // of the random factors
  int64_t period = 1;         // post_local_sgd: updates from one average of the weights to the next
  bool operator==(const HookConfig&) const = default;
};

// Which activations the backward pass computes again instead of reading them: none, all but the input of
// every `interval` layers, or those that are cheap to compute.
enum class RecomputeMode { none, interval, selective };
// The recompute mode and its interval.
struct RecomputeConfig {
  RecomputeMode mode = RecomputeMode::none;
  int64_t interval = 0;  // of mode interval: number of layers whose common input is kept
  bool operator==(const RecomputeConfig&) const = default;
};

// The order in which the stages of a pipeline work on micro-batches (docs/plan.md).
enum class PipelineSchedule { gpipe, one_f_one_b, interleaved, zb_h1, zb_v };
// How the layers of the model are divided among ranks.
struct PipelineConfig {
  int stages = 1;
  PipelineSchedule schedule = PipelineSchedule::one_f_one_b;
  int virtual_stages = 1;                // parts of the model that each stage has
  std::string partition = "parameters";  // method, or "list": the first layers are given
  std::vector<int64_t> first_layers;     // of every part, with partition "list"
  bool operator==(const PipelineConfig&) const = default;
};

// The largest values of section aio: the kernel moves less than 2 GiB at a time, and allows 65536 requests by default.
inline constexpr int64_t kMostAioBlock = 1 << 30, kMostAioDepth = 65536, kMostAioThreads = 256;
// How files of offloaded tensors are read and written (section aio).
struct AioConfig {
  int64_t block_size = 1 << 20;      // bytes of a request, rounded up to whole disk blocks
  int64_t queue_depth = 8;           // requests in flight of each thread
  int64_t intra_op_parallelism = 1;  // threads
  bool single_submit = false;        // a system call for each request instead of one for many
  bool overlap_events = true;        // new requests while others are in flight
  bool operator==(const AioConfig&) const = default;
};

// The table of communication (section comms_logger).
struct CommsLoggerConfig {
  bool enabled = false;
  bool verbose = false;  // a line for every operation of the steps that are printed
  bool all_ops = true;
  std::vector<std::string> ops{};  // without all_ops: the names of those that count
  bool operator==(const CommsLoggerConfig&) const = default;
};

// Where a monitor writes the metrics of a run (sections tensorboard and csv_monitor).
struct MonitorConfig {
  bool enabled = false;
  std::string directory{};  // output_path/job_name
  bool operator==(const MonitorConfig&) const = default;
};

// The report of the work and the times of one step (section flops_profiler).
struct FlopsProfilerConfig {
  bool enabled = false;
  int64_t profile_step = 1;         // steps that are done before the one that is profiled
  int64_t module_depth = -1;        // depths of modules whose sums are reported; -1: all
  int64_t top_modules = 1;          // modules that are named at each depth
  bool detailed = true;             // with the tree of all modules
  std::string output_file{};        // empty: the log
  double recompute_fwd_factor = 0;  // forward passes that the backward pass repeats, for its FLOPs
  bool operator==(const FlopsProfilerConfig&) const = default;
};

// Where tensors are kept that are not on the device.
enum class OffloadTo { none, cpu, nvme };
// Who updates weights whose optimizer state is offloaded: the host, beside the state, or the device, which the state
// passes layer by layer.
enum class UpdateOn { automatic, host, device };
// What is offloaded (sections zero_optimization.offload_* and dstrain.offload).
struct OffloadConfig {
  OffloadTo optimizer = OffloadTo::none;
  UpdateOn optimizer_on = UpdateOn::automatic;
  double ratio = 1;  // the least share of the optimizer's state that is offloaded, from 0 to 1
  bool pin_memory = true;
  std::vector<std::string> nvme_paths{};   // directories, one for each drive
  OffloadTo parameters = OffloadTo::none;  // at stage 3
  // How many elements of the parameters on nvme each rank has in the host's memory all the same.
  int64_t max_in_cpu = 0;
  OffloadTo activations = OffloadTo::none;  // that are kept for the backward pass
  // Bytes of optimizer state on nvme that a rank may read during the backward pass, into the host's memory.
  int64_t read_ahead = 0;
  // Returns whether any tensor is on disk.
  bool uses_disk() const {
    return (optimizer == OffloadTo::nvme && ratio > 0) || parameters == OffloadTo::nvme ||
           activations == OffloadTo::nvme;
  }
  bool operator==(const OffloadConfig&) const = default;
};

// How a run's weights are saved at its end (dstrain.save_dtype, dstrain.max_shard_size).
struct SaveConfig {
  std::optional<DType> dtype;  // of all tensors; absent: that which the model's directory has
  DType usual = DType::f32;    // of a tensor that no directory has
  int64_t shard_bytes = 5'000'000'000;  // of a file of one of transformers' models
  bool operator==(const SaveConfig&) const = default;
};

// The files of adapters (dstrain.lora).
struct AdapterFiles {
  std::string init{};  // a folder of PEFT's files that adapters begin with; empty: fresh ones
  bool merge = false;  // the run's end also writes the model with its adapters in the weights
  bool operator==(const AdapterFiles&) const = default;
};

// Whether a GPU replays the step as one CUDA graph instead of launching its kernels one by one.
enum class GraphMode { automatic, on, off };

// Whether rows that a tensor group gathers for a product are gathered again in the backward pass, instead of kept. The
// numbers of a step are the same. A plan keeps them with `automatic`: whoever knows the memory turns it to `on`.
enum class GatherAgain { automatic, on, off };

// The largest number of data-parallel ranks whose GPUs add in rank order by default. Each of N ranks sends N - 1
// messages for a sum, which is as fast as a ring among the GPUs of one machine; among more NCCL's own sum is faster.
inline constexpr int kRankOrderRanks = 8;

// What the training loss has besides the cross-entropy (CrossEntropyAttrs).
struct LossConfig {
  double label_smoothing = 0, z_loss = 0;
  bool operator==(const LossConfig&) const = default;
};

// What keeps choices of experts balanced besides a model's own loss (section dstrain.experts).
struct ExpertsConfig {
  double bias_update = 0;  // by which a step changes the biases of choices
  double z_loss = 0;       // the weight of the loss of routers
  bool operator==(const ExpertsConfig&) const = default;
};

// What validations decide, under the names of Hugging Face's TrainingArguments.
struct BestModelConfig {
  bool load_at_end = false;        // the files of weights are those of the best validation
  std::string metric = "loss";     // of a validation, which compares models
  bool greater_is_better = false;  // values of the metric
  int64_t patience = 0;  // validations in a row without a better value that end a run; 0: none do
  double threshold = 0;  // for patience: how much better a value must be to count
  bool used() const { return load_at_end || patience > 0; }
  bool operator==(const BestModelConfig&) const = default;
};

// A training run.
struct Job {
  int ranks = 1;           // pipeline stages x data-parallel x sequence x tensor ranks
  int tensor_ranks = 1;    // that share each layer (tensor_parallel.autotp_size)
  int sequence_ranks = 1;  // that have parts of the same samples (sequence_parallel_size)
  // Data-parallel ranks that divide the experts of each layer (expert_parallel.autoep_size).
  int expert_ranks = 1;
  DeviceChoice device = DeviceChoice::cpu;  // automatic until the launcher has chosen one
  GraphMode graph = GraphMode::automatic;
  BatchConfig batch;
  OptimizerConfig optimizer;
  ScheduleConfig schedule;
  DType dtype = DType::f32;       // the run's dtype
  DType wire_dtype = DType::f32;  // communication_data_type, else the run's dtype
  DType grad_dtype = DType::f32;  // grad_accum_dtype: f32 or the run's dtype
  // The dtype of master weights: f32, or the run's (bf16_master_weights_and_grads), where the parameters are the masters.
  DType master_dtype = DType::f32;
  DType state_dtype = DType::f32;  // of the optimizer's state: f32, or that of the masters
  LossConfig loss;
  ExpertsConfig experts{};
  Objective objective;
  LossScaleConfig loss_scale;
  bool skip_on_overflow = false;   // fp16, and bf16 with check_grad_overflow
  double gradient_clipping = 1.0;  // 0: off
  ReduceMode reduce = ReduceMode::boundary;
  RecomputeConfig recompute;
  GatherAgain gather_again = GatherAgain::automatic;
  // Pieces of rows in which logits and losses are computed, and the MLP of a layer. 0: one, where the memory suffices.
  int64_t loss_chunks = 1, mlp_chunks = 1;
  PipelineConfig pipeline;
  int zero_stage = 0;
  ShardConfig shards;
  QuantizeConfig quantize;
  HookConfig hook;
  // The gradient of the token embedding may travel as rows (sparse_gradients.h).
  bool sparse_gradients = false;
  int64_t reduce_bucket_elements = 500'000'000;  // gradients that are reduced at a time
  bool overlap_comm = false;                     // communication runs beside computation
  bool overlap_tensor = false;  // sums over the tensor group run beside halves of products
  bool rank_order_sums = true;  // GPUs add in rank order, in f32; false: as NCCL adds
  GatherLimits gather;
  AioConfig aio;
  OffloadConfig offload;
  int64_t device_memory = 0;  // bytes of each rank's device that the run may use; 0: all
  ModelConfig model;
  DataConfig data;
  int64_t steps = 1000;
  uint64_t seed = 1337;
  int64_t eval_interval = 0;  // steps; 0: once, after the last
  int64_t save_interval = 0;  // steps; 0: never
  int64_t eval_samples = 160;
  BestModelConfig best;
  int64_t keep_last = 0;           // newest checkpoints that are kept; 0: all
  bool save_last = true;           // a run that ends leaves a checkpoint of its last step
  bool save_required = false;      // a checkpoint that cannot be saved ends the run
  int64_t keep_every = 0;          // checkpoints of multiples of this step are kept too; 0: none
  int64_t max_skipped_steps = 50;  // in a row, until the run fails
  int64_t steps_per_print = 10;
  CommsLoggerConfig comms_logger;
  MonitorConfig tensorboard, csv_monitor;
  bool wall_clock_breakdown = false;  // the times of a step's phases are measured
  FlopsProfilerConfig flops_profiler;
  bool memory_breakdown = false;  // the memory of the ranks is printed, planned and measured
  int64_t timeout_s = 600;        // limit of one instruction, and of a wait for another rank
  int64_t silence_s = 5;          // without a message from a host, until it counts as lost
  std::vector<std::string> weight_decay_exclude;
  std::string output;                // directory
  bool output_by_default = false;    // nobody has named `output`
  std::string trace;                 // trace file; empty: none
  std::string init_weights, resume;  // paths; empty: not given
  // The first weights of the run, or of the one that it resumes: what adapters are trained for. Empty: fresh ones; nothing:
  // it is not known.
  std::optional<std::string> base_weights = "";
  // A folder with the optimizer's state and the step of another program's run, as `dstrain import` writes it, which the run
  // goes on from; empty: none.
  std::string optimizer_state;
  // The folder of transformers' files that the model comes from; empty: none.
  std::string model_directory;
  SaveConfig save;
  AdapterFiles adapters;
  bool overwrite = false;            // another run's results in `output` are replaced
  bool resume_with_changes = false;  // resume although settings that change the numbers differ
  // Returns the number of ranks that have different samples and the same part of the model.
  int data_ranks() const {
    return static_cast<int>(ranks / (int64_t{pipeline.stages} * sequence_ranks * tensor_ranks));
  }
  // Returns the rows of tokens of so many samples; of others than tokens, the samples.
  int64_t rows_of(int64_t samples) const { return samples * objective.rows_per_sample(); }
  // Returns the number of ranks that have the same parameters: they add gradients and divide state.
  int state_ranks() const { return data_ranks() * sequence_ranks; }
  bool operator==(const Job&) const = default;
};

}  // namespace dstrain
