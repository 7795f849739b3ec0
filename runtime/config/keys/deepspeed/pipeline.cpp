// Section pipeline.
#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"

namespace dstrain::keys {
namespace {

constexpr Rule kStages{[](const Facts&, const KeySpec&, const Node& value) -> Judgement {
                         if (to_integer(value).value_or(0) > 1) return {};
                         return {State::no_effect, "the pipeline has one stage"};
                       },
                       "1: no_effect; more: honoured"};

// Keys that shape a pipeline.
constexpr Rule kShape{[](const Facts& facts, const KeySpec&, const Node&) -> Judgement {
                        if (facts.integer("pipeline.stages") > 1) return {};
                        return {State::no_effect, "the pipeline has one stage", true};
                      },
                      "one stage: no_effect; more: honoured"};

}  // namespace

std::vector<KeySpec> pipeline() {
  constexpr std::string_view messages =
      "it says how messages between stages travel, which changes no number";
  return {
      {.key = "pipeline", .type = Type::section},
      {.key = "pipeline.stages",
       .type = Type::integer,
       .fallback = "1",
       .note = "parts of the model, each on its own ranks",
       .rule = &kStages,
       .min = 1,
       .max = kMostRanksOfAxis},
      {.key = "pipeline.schedule",
       .type = Type::choice,
       .fallback = "\"1f1b\"",
       .note = "order of the micro-batches; torch's names are accepted too",
       .rule = &kShape,
       .choices = "gpipe|1f1b|interleaved|zb-h1|zb-v|loopedbfs|interleaved1f1b|"
                  "interleavedzerobubble|zbvzerobubble"},
      {.key = "pipeline.virtual_stages",
       .type = Type::integer,
       .fallback = "1",
       .note = "parts of the model on each stage; schedules interleaved and zb-v: 2 by default",
       .rule = &kShape,
       .min = 1,
       .max = 64},
      {.key = "pipeline.partition",
       .type = Type::string_or_integers,
       .fallback = "\"best\"",
       .note =
           "best and parameters: equal numbers of parameters; uniform: equal numbers of layers; "
           "type:REGEX: equal numbers of layers whose names match; time and memory, which may cut "
           "a block between attention and MLP; or the first layer of each part",
       .rule = &kShape},
      {.key = "pipeline.seed_layers",
       .fallback = "false",
       .state = State::no_effect,
       .note = "initial weights depend on the seed and a parameter's name alone"},
      {.key = "pipeline.activation_checkpoint_interval",
       .type = Type::integer,
       .fallback = "0",
       .note = "layers whose common input is kept; the rest is computed again",
       .rule = &rules::kRecompute,
       .min = 0},
      {.key = "pipeline.pipe_partitioned",
       .fallback = "true",
       .state = State::no_effect,
       .note = messages},
      {.key = "pipeline.grad_partitioned",
       .fallback = "true",
       .state = State::no_effect,
       .note = messages},
      {.key = "pipeline.use_reentrant",
       .fallback = "true",
       .state = State::no_effect,
       .note = "it chooses a variant of PyTorch's checkpointing"},
  };
}

}  // namespace dstrain::keys
