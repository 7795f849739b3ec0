// Section dstrain: what a run keeps of its weights, and which checkpoints it saves.
#include <fmt/core.h>

#include "runtime/config/family/family.h"
#include "runtime/config/keys/table/key_table.h"

namespace dstrain::keys {
namespace {

constexpr Rule kFilesOfWeights{
    [](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
      if (!facts.family->hugging_face)
        return {State::no_effect, fmt::format("a {} is saved in one file", facts.family->title)};
      return {};
    },
    "a model that is not Hugging Face's: no_effect; else honoured"};

}  // namespace

std::vector<KeySpec> saving() {
  const auto count = [](std::string_view key, std::string_view note) {
    return KeySpec{.key = key,
                   .type = Type::integer,
                   .fallback = "0",
                   .note = note,
                   .min = 0,
                   .max = kMaxCount};
  };
  return {
      {.key = "dstrain.optimizer_state",
       .type = Type::string,
       .note = "a folder with the optimizer's state and the step of a DeepSpeed run, as `dstrain "
               "import --optimizer_state` writes it, which the run goes on from; unset: a new run"},
      {.key = "dstrain.ema", .type = Type::section},
      {.key = "dstrain.ema.decay",
       .type = Type::real,
       .fallback = "0",
       .note = "above 0: a run keeps an exponential moving average of its weights too, of which "
               "each update leaves this share; validations measure both, and OUTPUT/ema has the "
               "averages",
       .min = 0,
       .max = 1,
       .open = true},
      count("dstrain.save_interval", "steps between two checkpoints; 0: never"),
      {.key = "dstrain.load_best_model_at_end",
       .fallback = "false",
       .note = "the run ends with the weights of its best validation: each better one saves a "
               "checkpoint, which stays"},
      {.key = "dstrain.metric_for_best_model",
       .type = Type::string,
       .fallback = "\"loss\"",
       .note = "of a validation: loss, ema_loss with dstrain.ema, or a metric of the model"},
      {.key = "dstrain.greater_is_better",
       .note = "values of that metric; unset: false of a name that ends with loss, else true"},
      count("dstrain.early_stopping_patience",
            "validations in a row without a better value of that metric that end the run; 0: none "
            "do"),
      {.key = "dstrain.early_stopping_threshold",
       .type = Type::real,
       .fallback = "0",
       .note = "how much better a value must be to be one for early_stopping_patience",
       .min = 0},
      {.key = "dstrain.save_total_limit",
       .type = Type::integer,
       .min = 0,
       .max = kMaxCount,
       .alias = "dstrain.keep_last"},
      {.key = "dstrain.save_last",
       .fallback = "true",
       .note = "a run that ends saves a checkpoint of its last step too, which --resume goes on "
               "from and the next run replaces"},
      {.key = "dstrain.save_required",
       .fallback = "false",
       .note = "a checkpoint that cannot be saved ends the run; false: it is left out, with a "
               "warning"},
      {.key = "dstrain.save_dtype",
       .type = Type::choice,
       .note = "of the weights in the output directory; unset: of each tensor that of the model's "
               "directory, else its config.json's, else fp32",
       .choices = "fp32|float32|fp16|float16|bf16|bfloat16"},
      {.key = "dstrain.max_shard_size",
       .type = Type::bytes,
       .fallback = "5000000000",
       .note = "of a file of weights; more are divided over several, with an index",
       .rule = &kFilesOfWeights,
       .min = 1},
      count("dstrain.keep_last",
            "newest checkpoints that stay, older ones are removed after a save, or before one that "
            "lacks room; 0: all stay"),
      count("dstrain.keep_every",
            "with keep_last: checkpoints of these steps' multiples stay too; 0: none"),
  };
}

}  // namespace dstrain::keys
