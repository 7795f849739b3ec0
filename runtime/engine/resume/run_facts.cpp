#include "runtime/engine/resume/run_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/config/family/family.h"
#include "runtime/config/text.h"
#include "runtime/core/checksum.h"
#include "runtime/core/fine_tuning/objective_names.h"
#include "runtime/data/chat/chat_template.h"
#include "runtime/data/chat/template_directory.h"
#include "runtime/data/file/data_files.h"
#include "runtime/optim/lr_schedule.h"
#include "runtime/optim/optimizer_rules.h"

namespace dstrain {
namespace {

constexpr const char* kModelsTemplate = "that of the model";

// Collects facts. Numbers have their shortest round-trip form.
class FactList {
 public:
  template <class Value>
  void add(FactChange change, std::string name, const Value& value) {
    facts_.push_back({std::move(name), fmt::format("{}", value), change});
  }
  // Adds a fact that a checkpoint may lack, which then has the value `usual`.
  void add_unusual(FactChange change, std::string name, std::string value, std::string usual) {
    facts_.push_back({std::move(name), std::move(value), change, std::move(usual)});
  }
  RunFacts take() { return std::move(facts_); }

 private:
  RunFacts facts_;
};

uint64_t checksum_of_text(const std::string& text) {
  return checksum_of(text.data(), static_cast<int64_t>(text.size()));
}

// Quoted, so that lists with other members have other texts.
std::string list_text(const std::vector<std::string>& members) {
  std::string text;
  for (const std::string& member : members)
    text += fmt::format("{}\"{}\"", text.empty() ? "" : ", ", member);
  return "[" + text + "]";
}

// Adds the model: the number of layers, the type and the other keys, at the end those that may change.
void add_model(FactList& list, const ModelConfig& m) {
  const ModelFamily& family = m.family();
  const auto add = [&](const ModelKey& key) {
    const ModelConfig::Value& held = m.value(key.name());
    if (const auto* text = std::get_if<std::string>(&held); text && key.spec.fallback.empty())
      return list.add_unusual(key.change, std::string(key.spec.key),
                              text->empty() ? "unset" : *text, "unset");
    std::visit([&](const auto& value) { list.add(key.change, std::string(key.spec.key), value); },
               held);
  };
  const auto add_if = [&](auto wanted) {
    for (const ModelKey& key : family.keys)
      if (wanted(key)) add(key);
  };
  const auto layers = [&](const ModelKey& key) { return key.name() == family.layers_key; };
  const auto allowed = [](const ModelKey& key) { return key.change == FactChange::allowed; };
  add_if(layers);
  list.add(FactChange::impossible, "dstrain.model.type", family.type);
  add_if([&](const ModelKey& key) { return !layers(key) && !allowed(key); });
  add_if(allowed);
}

std::string vocabulary_text(const Vocabulary& vocabulary) {
  switch (vocabulary.format) {
    case DataFormat::characters:
      return fmt::format("{} characters, checksum {:016x}", vocabulary.size,
                         checksum_of_text(vocabulary_json(vocabulary)));
    case DataFormat::bytes:
      return "bytes";
    case DataFormat::tokens:
      return "token ids";
    case DataFormat::automatic:
    case DataFormat::arrays:
    case DataFormat::images:
      break;
  }
  return "none";
}

// Returns "3 files (a.bin, b.bin, c.bin), " of several files: their names, because they may lie elsewhere on another host.
std::string several_files(const Dataset& dataset) {
  const std::vector<std::string> files = dataset.files(Split::train).paths;
  return files.size() > 1 ? names_of_files(files) + ", " : "";
}

// Returns the chat template as one fact: a file by what it contains.
std::string template_text(const DataConfig& data) {
  const std::string& given = data.chat_template;
  if (given.empty()) return kModelsTemplate;
  if (!built_in_template(given).empty()) return given;
  return "a file with the checksum " + chat_template_checksum("", given);
}

// Returns which file is for validation.
std::string validation_text(const Dataset& dataset) {
  const std::vector<std::string> files = dataset.files(Split::validation).paths;
  if (files.empty()) return "none";
  return fmt::format("{}, {}, checksum {:016x}", names_of_files(files),
                     counted(dataset.samples(Split::validation), "sample"),
                     dataset.validation_fingerprint());
}

// Returns how samples are made of images.
std::string images_text(const DataConfig& data) {
  const ImageConfig& p = data.images;
  if (data.format != DataFormat::images) return "none";
  return fmt::format("mean [{}], std [{}], crop {}, flip {}, size {}", fmt::join(p.mean, ", "),
                     fmt::join(p.std, ", "), p.crop, p.flip, p.size);
}

void add_data(FactList& list, const Job& job, const Dataset& dataset) {
  list.add(FactChange::forbidden, "vocabulary", vocabulary_text(dataset.vocabulary()));
  list.add(FactChange::forbidden, "dstrain.seed", job.seed);
  if (!job.model.family().reads_files()) return;  // samples are made from the seed
  list.add(FactChange::forbidden, "dstrain.data.order",
           job.data.random_order ? "random" : "sequential");
  list.add_unusual(FactChange::forbidden, "dstrain.data.seq_len",
                   fmt::format("{}", job.model.seq_len()),
                   fmt::format("{}", job.model.usual_seq_len()));
  list.add_unusual(FactChange::forbidden, "dstrain.data.whole",
                   fmt::format("{}", fmt::join(job.model.whole(), ", ")), "");
  constexpr std::string_view kPackings[] = {"none", "pack", "pad"},
                             kTooLong[] = {"cut", "drop", "error"};
  list.add_unusual(FactChange::forbidden, "dstrain.data.packing",
                   std::string(kPackings[static_cast<int>(job.data.packing)]), "none");
  if (job.data.packing != Packing::none)
    list.add_unusual(FactChange::forbidden, "dstrain.data.too_long",
                     std::string(kTooLong[static_cast<int>(job.data.too_long)]), "cut");
  list.add_unusual(FactChange::forbidden, "images", images_text(job.data), "none");
  list.add(FactChange::allowed, "data",
           fmt::format("{}{} training samples, checksum {:016x}", several_files(dataset),
                       dataset.samples(Split::train), dataset.fingerprint()));
  list.add(FactChange::allowed, "dstrain.data.val_fraction", job.data.val_fraction);
  list.add_unusual(FactChange::allowed, std::string(kTemplateKey), template_text(job.data),
                   kModelsTemplate);
  list.add_unusual(FactChange::allowed, "dstrain.data.val_path", validation_text(dataset), "none");
}

// Returns the names of the slots that an optimizer keeps for parameters updated in a form.
std::string slot_names(const OptimizerConfig& o, UpdateForm form) {
  std::vector<std::string_view> names;
  for (const SlotRule& slot : state_slots(o))
    if (slot.forms.has(form)) names.push_back(slot.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

// Returns the tensors that an optimizer keeps for each parameter.
std::string slots_text(const OptimizerConfig& o) {
  if (state_slots(o).empty()) return "none";
  const std::string of_elements = slot_names(o, UpdateForm::elements);
  switch (optimizer_rule(o.kind).other_form) {
    case UpdateForm::elements:
      break;
    case UpdateForm::matrix:
      return fmt::format("{}, of matrices {} alone", of_elements,
                         slot_names(o, UpdateForm::matrix));
    case UpdateForm::blocks:
      return fmt::format("{}, in 8 bits {}", of_elements, slot_names(o, UpdateForm::blocks));
  }
  return of_elements;
}

// Returns the objective with all of its settings.
std::string objective_text(const Objective& o) {
  if (o.has_plain_loss()) return std::string(name_of(o.kind));
  if (o.has_teacher())
    return fmt::format("{}, kd_ratio {}, teacher_top_k {}", name_of(o.kind), o.kd_ratio,
                       o.teacher_top_k);
  if (o.scores_answers())
    return fmt::format("{}, center_rewards_coefficient {}", name_of(o.kind),
                       o.center_rewards_coefficient);
  if (o.rates_answers())
    return fmt::format("{}, beta {}, desirable_weight {}, undesirable_weight {}",
                       name_of(o.loss_type), o.beta, o.desirable_weight, o.undesirable_weight);
  return fmt::format("{}, loss_type {}, beta {}, label_smoothing {}, simpo_gamma {}",
                     name_of(o.kind), name_of(o.loss_type), o.beta, o.label_smoothing,
                     o.simpo_gamma);
}

void add_optimizer(FactList& list, const Job& job) {
  const OptimizerConfig& o = job.optimizer;
  const auto params = [&list](std::string_view key, const auto& value) {
    list.add(FactChange::allowed, fmt::format("optimizer.params.{}", key), value);
  };
  const OptimizerRule& rule = optimizer_rule(o.kind);
  list.add(FactChange::forbidden, "optimizer.type", rule.name(o));
  list.add(FactChange::impossible, "optimizer slots", slots_text(o));
  params("lr", o.lr);
  params("weight_decay", o.weight_decay);
  for (const auto& [key, value, usual] : rule.params(o))
    if (usual)
      list.add_unusual(FactChange::allowed, fmt::format("optimizer.params.{}", key), value, *usual);
    else
      params(key, value);
  list.add(FactChange::allowed, "dstrain.weight_decay_exclude",
           list_text(job.weight_decay_exclude));
  list.add(FactChange::allowed, "gradient_clipping", job.gradient_clipping);
  list.add_unusual(FactChange::allowed, "dstrain.ema.decay", fmt::format("{}", o.ema_decay), "0");
  list.add_unusual(FactChange::allowed, "dstrain.label_smoothing",
                   fmt::format("{}", job.loss.label_smoothing), "0");
  list.add_unusual(FactChange::allowed, "dstrain.z_loss", fmt::format("{}", job.loss.z_loss), "0");
  list.add_unusual(FactChange::allowed, "dstrain.experts.bias_update",
                   fmt::format("{}", job.experts.bias_update), "0");
  list.add_unusual(FactChange::allowed, "dstrain.experts.z_loss",
                   fmt::format("{}", job.experts.z_loss), "0");
  list.add_unusual(FactChange::forbidden, "dstrain.objective", objective_text(job.objective),
                   objective_text({}));
}

// Returns the patterns of frozen parameters, in the order of their groups.
std::string frozen_text(const FineTuning& tuning) {
  std::vector<std::string> list;
  for (const ParameterGroup& group : tuning.groups)
    list.push_back(fmt::format("{}{}", group.trainable ? "not " : "", list_text(group.match)));
  return tuning.may_freeze() && !list.empty() ? fmt::format("{}", fmt::join(list, ", ")) : "none";
}

// Returns the groups that change a learning rate or a weight decay.
std::string rates_text(const FineTuning& tuning) {
  std::vector<std::string> list;
  for (const ParameterGroup& group : tuning.groups)
    if (group.trainable)
      list.push_back(fmt::format(
          "{}: lr_scale {}, weight_decay {}", list_text(group.match), group.lr_scale,
          group.weight_decay ? fmt::format("{}", *group.weight_decay) : "the optimizer's"));
  return list.empty() ? "none" : fmt::format("{}", fmt::join(list, "; "));
}

void add_fine_tuning(FactList& list, const FineTuning& tuning) {
  list.add_unusual(FactChange::impossible, "frozen parameters", frozen_text(tuning), "none");
  list.add_unusual(FactChange::allowed, "dstrain.parameter_groups", rates_text(tuning), "none");
  const std::optional<LoraConfig>& lora = tuning.lora;
  list.add_unusual(FactChange::impossible, "dstrain.lora",
                   lora ? fmt::format("rank {} of {}, base {}", lora->r,
                                      lora->all_linear ? "all-linear" : list_text(lora->targets),
                                      name_of(lora->base)) +
                              (lora->saved.empty() ? "" : ", whole " + list_text(lora->saved))
                        : "none",
                   "none");
  if (!lora) return;
  list.add(FactChange::forbidden, "scale of adapters", lora->scale());
  list.add(FactChange::allowed, "dstrain.lora.dropout", lora->dropout);
}

// Adds the schedule as one fact: its kind and the parameters that the kind uses.
void add_schedule(FactList& list, const ScheduleConfig& s) {
  const ScheduleRule& rule = schedule_rule(s.kind);
  std::string text(rule.name);
  if (rule.text) text += ": " + rule.text(s);
  if (s.last_batch_iteration >= 0)
    text += fmt::format(", from iteration {}", s.last_batch_iteration);
  list.add(FactChange::allowed, "scheduler", text);
}

// Returns which ranks are a group.
std::string groups_text(const ShardConfig& shards) {
  if (shards.by_host) return "the ranks of a host";
  return shards.ranks == 0 ? "all ranks" : counted(shards.ranks, "rank");
}

// Returns the communication hook as one fact.
std::string hook_text(const HookConfig& h, const ShardConfig& groups) {
  if (h.kind == HookKind::none) return "none";
  if (h.kind == HookKind::post_local_sgd)
    return fmt::format("post_localSGD after {} steps, period {}, groups of {}", h.start, h.period,
                       groups_text(groups));
  return fmt::format(
      "{} of rank {} after {} steps, rate {}, error feedback {}, epsilon {}, seed {}{}",
      h.kind == HookKind::power_sgd ? "powerSGD" : "batched_powerSGD", h.rank, h.start,
      h.min_compression, h.error_feedback, h.orthogonal_eps, h.seed,
      h.warm_start ? "" : ", no warm start");
}

// Returns the settings of LoCo as one fact.
std::string loco_text(const QuantizeConfig& q) {
  if (!q.gradients || !q.feedback) return "none";
  return fmt::format("err_beta {}, reset_T {}", q.error_beta, q.error_steps);
}

void add_precision(FactList& list, const Job& job) {
  list.add(FactChange::forbidden, "dtype", name_of(job.dtype));
  list.add(FactChange::forbidden, "master weights", name_of(job.master_dtype));
  list.add(FactChange::forbidden, "optimizer state", name_of(job.state_dtype));
  list.add(FactChange::allowed, "communication_data_type", name_of(job.wire_dtype));
  list.add(FactChange::allowed, "grad_accum_dtype", name_of(job.grad_dtype));
  list.add(FactChange::allowed, "zero_optimization.zero_quantized_weights", job.quantize.weights);
  list.add(FactChange::allowed, "zero_optimization.zero_quantized_gradients",
           job.quantize.gradients);
  // Gradients that travel from group to group are rounded once more.
  list.add(FactChange::allowed, "quantized between groups",
           groups_text(job.quantize.gradients ? job.shards : ShardConfig{}));
  list.add(FactChange::allowed, "zero_optimization.zeropp_loco_param", loco_text(job.quantize));
  list.add(FactChange::allowed, "dstrain.comm_hook", hook_text(job.hook, job.shards));
  const LossScaleConfig& s = job.loss_scale;
  if (job.dtype == DType::f16)
    list.add(FactChange::allowed, std::string(kLossScaleFact),
             s.dynamic ? fmt::format("{} from {}, window {}, hysteresis {}{}, at least {}",
                                     kDynamicLossScale, s.initial, s.window, s.hysteresis,
                                     s.consecutive_hysteresis ? " in a row" : "", s.minimum)
                       : fmt::format("loss scale {}", s.initial));
  list.add(FactChange::irrelevant, "skip_on_overflow", job.skip_on_overflow);
  list.add(FactChange::irrelevant, "dstrain.max_skipped_steps", job.max_skipped_steps);
}

// Adds what all ranks of a run must agree on although it changes no number, or only its last bits.
void add_layout(FactList& list, const Job& job) {
  const auto add = [&list](std::string_view name, const auto& value) {
    list.add(FactChange::irrelevant, std::string(name), value);
  };
  add("ranks", job.ranks);
  add("sequence_parallel_size", job.sequence_ranks);
  add("tensor_parallel.autotp_size", job.tensor_ranks);
  add("pipeline.stages", job.pipeline.stages);
  add("pipeline.schedule", static_cast<int>(job.pipeline.schedule));
  add("pipeline.virtual_stages", job.pipeline.virtual_stages);
  const PipelineConfig& pipeline = job.pipeline;
  add("pipeline.partition", pipeline.first_layers.empty()
                                ? pipeline.partition
                                : fmt::format("[{}]", fmt::join(pipeline.first_layers, ", ")));
  add("device", std::string(name_of(job.device)));
  add("train_micro_batch_size_per_gpu", job.batch.micro_batch);
  add("gradient_accumulation_steps", job.batch.accumulation);
  add("zero_optimization.stage", job.zero_stage);
  add("shard ranks", groups_text(job.shards));
  add("zero_optimization.reduce_bucket_size", job.reduce_bucket_elements);
  add("zero_optimization.overlap_comm", job.overlap_comm);
  add("tensor_parallel.tp_overlap_comm", job.overlap_tensor);
  const GatherLimits& g = job.gather;
  add("zero_optimization.stage3",
      fmt::format("prefetch {}, persistence {} and {}, live {}, reuse {}", g.prefetch_elements,
                  g.param_persistence, g.model_persistence, g.max_live_elements,
                  g.max_reuse_distance));
  add("dstrain.reduce", job.reduce == ReduceMode::boundary ? "boundary" : "micro_batch");
  add("sparse_gradients", job.sparse_gradients);
  add("dstrain.gather_again", static_cast<int>(job.gather_again));
  add("dstrain.recompute",
      fmt::format("{} {}", static_cast<int>(job.recompute.mode), job.recompute.interval));
  add("dstrain.loss_chunks", std::max<int64_t>(job.loss_chunks, 1));
  add("dstrain.mlp_chunks", std::max<int64_t>(job.mlp_chunks, 1));
  add("zero_optimization.offload_param", static_cast<int>(job.offload.parameters));
  add("zero_optimization.offload_param.max_in_cpu", job.offload.max_in_cpu);
  add("dstrain.offload.read_ahead", job.offload.read_ahead);
  add("dstrain.offload.activations", static_cast<int>(job.offload.activations));
  add("zero_optimization.offload_optimizer", static_cast<int>(job.offload.optimizer));
  add("zero_optimization.offload_optimizer.ratio", job.offload.ratio);
  add("dstrain.offload.optimizer_on", static_cast<int>(job.offload.optimizer_on));
  add("dstrain.deterministic_collectives", job.rank_order_sums);
  add("dstrain.cuda_graph", static_cast<int>(job.graph));
  add("dstrain.eval_interval", job.eval_interval);
  add("dstrain.eval_samples", job.eval_samples);
  add("dstrain.save_interval", job.save_interval);
  add("dstrain.save_last", job.save_last);
  add("dstrain.save_required", job.save_required);
}

}  // namespace

RunFacts run_facts(const Job& job, const Dataset& dataset) {
  FactList list;
  add_model(list, job.model);
  add_data(list, job, dataset);
  list.add(FactChange::allowed, "train_batch_size", job.batch.train_batch);
  list.add(FactChange::allowed, "dstrain.steps", job.steps);
  add_optimizer(list, job);
  add_fine_tuning(list, job.model.fine_tuning());
  add_schedule(list, job.schedule);
  add_precision(list, job);
  add_layout(list, job);
  return list.take();
}

uint64_t fingerprint_of(const RunFact& fact) {
  return checksum_of_text(fmt::format("{}={}", fact.name, fact.value));
}

uint64_t fingerprint_of(const RunFacts& facts) {
  std::vector<uint64_t> parts;
  parts.reserve(facts.size());
  for (const RunFact& fact : facts) parts.push_back(fingerprint_of(fact));
  return checksum_of(parts.data(), static_cast<int64_t>(parts.size() * sizeof(uint64_t)));
}

}  // namespace dstrain
