#include "runtime/config/keys/table/other_names.h"

#include <algorithm>
#include <string>

#include "runtime/config/text.h"

namespace dstrain {
namespace {

constexpr std::string_view kScheduleAdvice =
    "name a section scheduler: WarmupDecayLR with warmup_type \"linear\" decays linearly, "
    "WarmupCosineLR by a cosine, WarmupLR stays at its rate, no section is a constant rate";

constexpr std::string_view kPrecision =
    "mixed_precision|precision|dtype|torch_dtype|half_precision|model_dtype";

constexpr OtherName kOtherNames[] = {
    // Batches and the length of a run.
    {"batch_size|global_batch_size|train_step_batch_size|total_batch_size", "train_batch_size"},
    {"micro_batch_size|micro_batch_per_gpu|micro_batch_size_per_gpu|train_micro_batch_size|"
     "per_device_train_batch_size|per_gpu_train_batch_size|batch_size_per_gpu|"
     "batch_size_per_device|train_micro_batch_size_per_cpu",
     "train_micro_batch_size_per_gpu"},
    {"gradient_accumulation|grad_accumulation_steps|accumulate_grad_batches|gas|grad_accum_steps",
     "gradient_accumulation_steps"},
    {.names = "num_epochs|epochs|num_train_epochs|max_epochs|train_epochs|n_epochs",
     .key = "dstrain.steps",
     .option = "--epochs",
     .advice = "say it with the option --epochs"},
    {"max_steps|max_train_steps|train_steps|train_iters|num_steps|total_steps|num_train_steps|"
     "max_iters|num_iterations",
     "dstrain.steps", "--steps"},
    {"seed|random_seed|data_seed", "dstrain.seed", "--seed"},

    // The optimizer and its schedule.
    {"learning_rate|lr|base_lr|max_lr", "optimizer.params.lr"},
    {"weight_decay|wd", "optimizer.params.weight_decay"},
    {"adam_epsilon|adam_eps|eps|epsilon", "optimizer.params.eps"},
    {"betas|adam_betas", "optimizer.params.betas"},
    {.names = "adam_beta1|adam_beta2|beta1|beta2",
     .key = "optimizer.params.betas",
     .advice = "say both with optimizer.params.betas"},
    {.names = "optim|optimizer_type|optimizer_name",
     .key = "optimizer.type",
     .advice = "say it with optimizer.type"},
    {"max_grad_norm|grad_clip|clip_grad|clip_grad_norm|gradient_clip|gradient_clip_val|"
     "max_gradient_norm",
     "gradient_clipping"},
    {"warmup_steps|num_warmup_steps", "scheduler.params.warmup_num_steps"},
    {.names = "warmup_ratio|warmup|warmup_fraction",
     .key = "scheduler.params.warmup_num_steps",
     .advice = "say it in steps, with scheduler.params.warmup_num_steps"},
    {"lr_scheduler|lr_schedule|learning_rate_scheduler", "scheduler"},
    {.names = "lr_scheduler_type|scheduler_type|lr_decay_style|lr_scheduler_name",
     .key = "scheduler.type",
     .advice = kScheduleAdvice},
    {"label_smoothing|label_smoothing_factor", "dstrain.label_smoothing"},
    {"z_loss|z_loss_weight|z_loss_multiplier", "dstrain.z_loss"},
    {"ema_decay|model_ema_decay", "dstrain.ema.decay"},
    {.names = "ema|use_ema|model_ema|with_ema",
     .key = "dstrain.ema.decay",
     .advice = "say it with dstrain.ema.decay, such as 0.999"},
    {.names = "neftune_noise_alpha", .advice = "it is not part of dstrain"},

    // Precision and memory.
    {.names = kPrecision, .advice = "say it with bf16.enabled or fp16.enabled"},
    {.names = "fp8|float8|msamp|transformer_engine",
     .advice = "there is no fp8 here: use bf16.enabled",
     .idle = true},
    {"zero_stage|stage", "zero_optimization.stage"},
    {"gradient_checkpointing|checkpoint_activations|activation_checkpoint|recompute",
     "dstrain.recompute",
     "--activation_checkpoint_interval",
     {},
     {},
     true},
    {.names = "flash_attention|use_flash_attention|use_flash_attn|attn_implementation",
     .advice = "attention never stores its scores here",
     .idle = true},
    {"gradient_accumulation_dtype|grad_accum_dtype", "data_types.grad_accum_dtype"},
    {.names = "loss_scale|initial_scale_power|loss_scale_window|hysteresis|consecutive_hysteresis|"
              "min_loss_scale",
     .advice = "bf16 needs no loss scale: remove it",
     .sections = "bf16|bfloat16",
     .idle = true},

    {.names = "allreduce_bucket_size|all_reduce_bucket_size",
     .key = "zero_optimization.reduce_bucket_size",
     .advice = "did you mean zero_optimization.reduce_bucket_size?",
     .sections = "zero_optimization",
     .idle = true},

    // Ranks.
    {"num_stages|pipe_parallel_size|pipeline_parallel_size|pipeline_model_parallel_size|pp_size",
     "pipeline.stages", "--pipeline_num_stages"},
    {"tensor_parallel_size|tensor_model_parallel_size|model_parallel_size|tp_size|tp_degree",
     "tensor_parallel.autotp_size", "--tensor_parallel_size"},
    {"context_parallel_size|ulysses_size|ulysses_sequence_parallel_size|cp_size|sp_size|sp_degree",
     "sequence_parallel_size", "--sequence_parallel_size"},
    {.names = "nproc_per_node|num_processes|num_gpus_per_node|n_gpus|num_procs|world_size",
     .option = "--num_gpus",
     .idle = true},
    {"timeout|ddp_timeout", "dstrain.timeout_s", {}, {}, {}, true},

    // Models, data and files.
    {.names = "model_name_or_path|model_name|pretrained_model_name_or_path|base_model|model_path|"
              "model_id",
     .key = "dstrain.model",
     .option = "--model",
     .advice = "say it with the option --model"},
    {.names = "tokenizer_name|tokenizer_name_or_path|tokenizer|tokenizer_path",
     .key = "dstrain.data",
     .advice = "the tokenizer is the one in the folder of --model DIR"},
    {"data_path|train_file|train_data|train_files|train_path", "dstrain.data.path", "--data"},
    {.names = "dataset|dataset_name|dataset_path|dataset_dir",
     .key = "dstrain.data.path",
     .advice = "name a file of text, of tokens or of JSON lines with --data"},
    {"validation_file|val_file|eval_file|valid_data|eval_data|val_data", "dstrain.data.val_path"},
    {"chat_template|chat_template_path|chat_template_file", "dstrain.data.chat_template"},
    {.names = "validation_split_percentage",
     .key = "dstrain.data.val_fraction",
     .advice = "say it as a fraction, with dstrain.data.val_fraction"},
    {"max_seq_length|max_seq_len|max_length|model_max_length|seq_len|sequence_length|cutoff_len|"
     "sequence_len",
     "dstrain.data.seq_len"},
    {.names = "output_dir|save_dir|checkpoint_dir|results_dir", .option = "--output", .idle = true},
    {.names = "overwrite_output_dir", .option = "--overwrite", .idle = true},
    {.names = "resume_from_checkpoint|resume_from|load_checkpoint|restart_from",
     .option = "--resume",
     .advice = "say it with the option --resume"},
    {"save_steps|save_interval|checkpoint_interval|save_freq|save_every",
     "dstrain.save_interval",
     "--save_interval",
     {},
     {},
     true},
    {"save_total_limit|keep_last_n_checkpoints|max_checkpoints",
     "dstrain.keep_last",
     {},
     {},
     {},
     true},
    {.names = "save_strategy",
     .advice = "say it in steps, with dstrain.save_interval",
     .idle = true},
    {"eval_steps|eval_interval", "dstrain.eval_interval", {}, {}, {}, true},
    {"load_best_model_at_end", "dstrain.load_best_model_at_end", {}, {}, {}, true},
    {"metric_for_best_model", "dstrain.metric_for_best_model", {}, {}, {}, true},
    {"greater_is_better", "dstrain.greater_is_better", {}, {}, {}, true},
    {"early_stopping_patience|patience|early_stopping",
     "dstrain.early_stopping_patience",
     {},
     {},
     {},
     true},
    {"early_stopping_threshold", "dstrain.early_stopping_threshold", {}, {}, {}, true},
    {.names = "eval_strategy|evaluation_strategy",
     .advice = "say it in steps, with dstrain.eval_interval",
     .idle = true},
    {"log_interval|logging_steps|print_interval|log_every_n_steps|print_steps", "steps_per_print"},
    {.names = "report_to",
     .advice = "turn on the section tensorboard or csv_monitor",
     .idle = true},

    // Adapters.
    {"lora_r|lora_rank|peft_lora_r", "dstrain.lora.r"},
    {"lora_alpha|peft_lora_alpha", "dstrain.lora.alpha"},
    {"lora_dropout", "dstrain.lora.dropout"},
    {"target_modules|lora_target_modules|lora_target|lora_targets", "dstrain.lora.targets"},
    {"use_rslora", "dstrain.lora.rslora"},
    {.names = "use_peft|use_lora|peft_config|lora_config",
     .key = "dstrain.lora",
     .advice = "say it with a section dstrain.lora"},
    {.names = "load_in_4bit|use_4bit",
     .key = "dstrain.lora.base",
     .advice = "say it with dstrain.lora.base: \"nf4\""},
    {.names = "load_in_8bit|use_8bit",
     .key = "dstrain.lora.base",
     .advice = "say it with dstrain.lora.base: \"int8\""},
    {"rank", "dstrain.lora.r", {}, {}, "dstrain.lora"},
};

// Returns `name` as the table above writes it.
std::string folded_name(std::string_view name) {
  while (name.starts_with('-')) name.remove_prefix(1);
  std::string text = lower_case(name);
  std::ranges::replace(text, '-', '_');
  return text;
}

}  // namespace

const OtherName* find_other_name(std::string_view name, std::string_view path) {
  const std::string folded = folded_name(name);
  for (const OtherName& other : kOtherNames)
    if (one_of(other.names, folded) &&
        (other.sections.empty() || (!path.empty() && one_of(other.sections, path))))
      return &other;
  return nullptr;
}

std::string_view precision_key(std::string_view value) {
  const std::string folded = folded_name(value);
  if (one_of("bf16|bfloat16|bf16_mixed|torch.bfloat16", folded)) return "bf16.enabled";
  if (one_of("fp16|float16|half|16|16_mixed|fp16_mixed|torch.float16", folded))
    return "fp16.enabled";
  return {};
}

bool names_precision(std::string_view name) {
  return one_of(kPrecision, folded_name(name));
}

}  // namespace dstrain
