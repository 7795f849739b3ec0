#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "runtime/config/solve.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

void solve_gptlite(ModelConfig& m, Values& v, Problems& problems) {
  m.n_layer = v.integer("dstrain.model.n_layer");
  m.n_embd = v.integer("dstrain.model.n_embd");
  m.n_head = v.integer("dstrain.model.n_head");
  m.block_size = v.integer("dstrain.model.block_size");
  m.dropout = v.real("dstrain.model.dropout");
  m.gelu = v.text("dstrain.model.activation") == "gelu";
  m.qkv_bias = v.flag("dstrain.model.qkv_bias");
  m.tied_head = v.flag("dstrain.model.tied_head");
  if (const Member* vocab = v.given("dstrain.model.vocab_size"); vocab)
    m.vocab_size = v.integer("dstrain.model.vocab_size", 0, "");
  if (m.n_embd % m.n_head != 0)
    problems.error(
        v.given("dstrain.model.n_head") ? "dstrain.model.n_head" : "dstrain.model.n_embd",
        fmt::format("n_embd {} is not a multiple of n_head {}", m.n_embd, m.n_head));
}

void solve_benchmark(ModelConfig& m, Values& v, Problems& problems) {
  const auto size = [&](std::string_view key) {
    if (!v.given(key))
      problems.error(
          key, fmt::format("the benchmark model needs it: add --set {}=64, for example", key));
    return v.integer(key, 1, "missing");
  };
  m.n_layer = size("dstrain.model.n_layer");
  m.in_size = size("dstrain.model.in_size");
  m.hidden_size = size("dstrain.model.hidden_size");
  m.out_size = size("dstrain.model.out_size");
}

void solve_data(Job& job, Values& v, Problems& problems, bool need_data) {
  DataConfig& d = job.data;
  if (job.model.kind == ModelKind::benchmark) {
    d.random_order = false;
    return;
  }
  if (const Member* path = v.given("dstrain.data.path"); path && path->value.text.empty())
    problems.error("dstrain.data.path", "is empty: name a text or token file");
  else if (path)
    d.path = v.text("dstrain.data.path", "", "");
  else if (need_data)
    problems.error("dstrain.data.path", "missing: name a text or token file, here or with --data");
  const std::string format = v.text("dstrain.data.format");
  d.format = format == "char"   ? DataFormat::characters
             : format == "byte" ? DataFormat::bytes
             : format == "bin"  ? DataFormat::tokens
                                : DataFormat::automatic;
  if (d.format == DataFormat::tokens && job.model.vocab_size == 0 &&
      !problems.stopped("dstrain.model.vocab_size"))
    problems.error("dstrain.model.vocab_size",
                   "missing: data of format bin does not say it (GPT-2: 50257)");
  if (d.format == DataFormat::bytes && job.model.vocab_size > 0 && job.model.vocab_size < 256)
    problems.error(
        "dstrain.model.vocab_size",
        fmt::format("{} is less than the 256 of data of format byte", job.model.vocab_size));
  d.random_order = v.text("dstrain.data.order") == "random";
  d.val_fraction = v.real("dstrain.data.val_fraction");
}

// Two keys ask for recompute: DeepSpeed's interval (0, its default, asks for nothing) and ours, which
// takes the word where both are equal.
RecomputeConfig solve_recompute(Values& v, Problems& problems) {
  constexpr std::string_view interval_key = "pipeline.activation_checkpoint_interval";
  constexpr std::string_view own_key = "dstrain.recompute";
  const auto of_interval = [](int64_t n) {
    return n > 0 ? RecomputeConfig{RecomputeMode::interval, n} : RecomputeConfig{};
  };
  const int64_t interval = v.integer(interval_key);
  const Member* own = v.given(own_key);
  if (!own) {
    const std::string why = interval > 0 ? std::string(interval_key) : "the default";
    v.record(own_key, interval > 0 ? std::to_string(interval) : "\"none\"",
             v.is_auto(own_key) ? "auto: " + why
             : interval > 0     ? "derived: " + why
                                : "default");
    return of_interval(interval);
  }
  const std::optional<int64_t> number = to_integer(own->value, false);
  RecomputeConfig config = of_interval(number.value_or(0));
  if (!number && lower_case(own->value.text) == "selective") config.mode = RecomputeMode::selective;
  v.record(own_key, json_text(own->value), v.origin_of(own_key));
  if (interval > 0 && config != of_interval(interval))
    problems.error(own_key, fmt::format("{} is not what {} {} asks for: keep one of the two",
                                        json_text(own->value), interval_key, interval));
  return config;
}

}  // namespace

void solve_run(Job& job, Values& values, Problems& problems, const Facts& facts, bool need_data) {
  values.text("dstrain.model.type");
  job.model.kind = facts.model == "benchmark" ? ModelKind::benchmark : ModelKind::gptlite;
  if (job.model.kind == ModelKind::gptlite)
    solve_gptlite(job.model, values, problems);
  else
    solve_benchmark(job.model, values, problems);
  solve_data(job, values, problems, need_data);
  job.recompute = solve_recompute(values, problems);
  const std::string graph = values.text("dstrain.cuda_graph");
  job.graph = graph == "on"    ? GraphMode::on
              : graph == "off" ? GraphMode::off
                               : GraphMode::automatic;
  job.steps = values.integer("dstrain.steps");
  job.seed = static_cast<uint64_t>(values.integer("dstrain.seed"));
  job.eval_interval = values.integer("dstrain.eval_interval");
  job.eval_samples = values.integer("dstrain.eval_samples");
  job.save_interval = values.integer("dstrain.save_interval");
  job.keep_last = values.integer("dstrain.keep_last");
  job.keep_every = values.integer("dstrain.keep_every");
  job.max_skipped_steps = values.integer("dstrain.max_skipped_steps");
  job.timeout_s = values.integer("dstrain.timeout_s");
  job.silence_s = values.integer("dstrain.silence_s");
  if (values.given("dstrain.trace")) job.trace = values.text("dstrain.trace", "", "");
  if (const Member* exclude = values.given("dstrain.weight_decay_exclude")) {
    for (const Node& pattern : exclude->value.items)
      job.weight_decay_exclude.push_back(pattern.text);
    values.record("dstrain.weight_decay_exclude", json_text(exclude->value),
                  values.origin_of("dstrain.weight_decay_exclude"));
  } else {
    values.record("dstrain.weight_decay_exclude", "[]", "default");
  }
}

namespace {

constexpr int64_t kMostLayers = 2048;
constexpr int64_t kMostLayerPasses = int64_t{1} << 18;

// A plan lists every instruction of a step, layer by layer and micro-batch by micro-batch: its size, and the
// time that planning takes, are bounded here.
void check_plan_size(const Job& job, Problems& problems) {
  const int64_t layers = job.model.n_layer,
                micro_batches = std::max<int64_t>(job.batch.accumulation, 1);
  if (layers > kMostLayers)
    problems.error(
        "dstrain.model.n_layer",
        fmt::format("{} layers are more than the {} that a plan can hold: use fewer, wider "
                    "layers",
                    layers, kMostLayers));
  else if (micro_batches > kMostLayerPasses / std::max<int64_t>(layers, 1))
    problems.error(
        "gradient_accumulation_steps",
        fmt::format(
            "{} micro-batches a step through {} layer{} are more than the {} passes through a "
            "layer that a plan can hold: at most {} micro-batches; use a larger "
            "train_micro_batch_size_per_gpu, or a smaller train_batch_size",
            micro_batches, layers, layers == 1 ? "" : "s", kMostLayerPasses,
            kMostLayerPasses / std::max<int64_t>(layers, 1)));
}

}  // namespace

void check_sizes(const Job& job, Problems& problems) {
  check_plan_size(job, problems);
  // In doubles, which cannot overflow; the limit leaves room for sums, paddings and bytes per element.
  constexpr double limit = 0x1p55;
  const ModelConfig& m = job.model;
  const auto d = [](int64_t n) { return static_cast<double>(n); };
  double parameters = 0, widest = 0;
  if (m.kind == ModelKind::gptlite) {
    parameters = d(m.n_layer) * 13.0 * d(m.n_embd) * d(m.n_embd) +
                 (2.0 * d(m.vocab_size) + d(m.block_size)) * d(m.n_embd);
    const double width = std::max(d(m.vocab_size), 4.0 * d(m.n_embd));
    widest = d(m.block_size) * (width + d(m.n_head)) * (d(m.n_layer) + 1);
  } else {
    const double side = std::max(d(m.hidden_size), std::max(d(m.in_size), d(m.out_size)));
    parameters = d(m.n_layer) * side * (side + 1);
    widest = side * (d(m.n_layer) + 1);
  }
  // A product of a micro-batch has a row for each of its tokens.
  constexpr int64_t most_rows = 2147483647;
  const int64_t tokens = m.kind == ModelKind::gptlite ? m.block_size : 1;
  if (job.batch.micro_batch > most_rows / tokens)
    problems.error("train_micro_batch_size_per_gpu",
                   fmt::format("{} samples of {} tokens are more than the {} rows that a product "
                               "can have: use at most {}",
                               job.batch.micro_batch, tokens, most_rows, most_rows / tokens));
  if (parameters > limit)
    problems.error("dstrain.model",
                   fmt::format("about {:.1e} parameters are more than can be counted", parameters));
  else if (widest * std::max(1.0, d(job.batch.micro_batch)) > limit)
    problems.error(
        "dstrain.model",
        fmt::format("about {:.1e} activations of a micro-batch are more than can be counted",
                    widest * std::max(1.0, d(job.batch.micro_batch))));
  if (d(job.steps) * d(job.batch.train_batch) > 0x1p62)
    problems.error("dstrain.steps",
                   fmt::format("{} steps of {} samples are more than can be counted", job.steps,
                               job.batch.train_batch));
}

}  // namespace dstrain
