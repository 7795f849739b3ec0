// Section dstrain: what is learned, and what the training loss has besides the cross-entropy.
#include "runtime/config/keys/table/key_table.h"
#include "runtime/core/fine_tuning/objective_names.h"

namespace dstrain::keys {

std::vector<KeySpec> loss() {
  return {
      {.key = "dstrain.label_smoothing",
       .type = Type::real,
       .fallback = "0",
       .note = "the share of each target that all classes have alike, as PyTorch's cross_entropy "
               "has it; validations are without it",
       .min = 0,
       .max = 1,
       .open = true},
      {.key = "dstrain.z_loss",
       .type = Type::real,
       .fallback = "0",
       .note = "each target's loss has this times the square of the logarithm of the sum of "
               "exp(logits) too, which keeps logits small: 1e-4; validations are without it",
       .min = 0,
       .max = 1},
      {.key = "dstrain.experts", .type = Type::section},
      {.key = "dstrain.experts.bias_update",
       .type = Type::real,
       .fallback = "0",
       .note = "by this a step changes the bias of each expert by which tokens choose it: up where "
               "fewer than the mean chose it, down where more did: 1e-3",
       .min = 0,
       .max = 1},
      {.key = "dstrain.experts.z_loss",
       .type = Type::real,
       .fallback = "0",
       .note =
           "each layer with experts adds this times the mean over its rows of the square of the "
           "logarithm of the sum of exp(logits) of its router: 1e-3; validations are without it",
       .min = 0,
       .max = 1},
      {.key = "dstrain.objective", .type = Type::section},
      {.key = "dstrain.objective.type",
       .type = Type::choice,
       .fallback = "\"next_token\"",
       .note =
           "what is learned: the next token; of pairs of answers which one is preferred, by "
           "the definition of DPO, SimPO or ORPO; or which answers are desirable, by that of "
           "KTO; or a score of answers, by pairs; or the next token and what a teacher gives to "
           "the likeliest ones (FILE.teacher, which dstrain teach writes)",
       .choices = kObjectiveNames},
      {.key = "dstrain.objective.loss_type",
       .type = Type::choice,
       .fallback = "\"sigmoid\"",
       .note = "dpo: the loss of a pair's margin (sigmoid, ipo, hinge); kto: the loss of an answer "
               "(kto, "
               "apo_zero_unpaired)",
       .choices = kAnswerLossNames},
      {.key = "dstrain.objective.beta",
       .type = Type::real,
       .fallback = "0.1",
       .note = "of answers: what margins are multiplied by; orpo: the weight of the odds' loss",
       .min = 0,
       .open = true},
      {.key = "dstrain.objective.label_smoothing",
       .type = Type::real,
       .fallback = "0",
       .note = "dpo with sigmoid, simpo: the probability that a pair's label is wrong",
       .min = 0,
       .max = 0.5},
      {.key = "dstrain.objective.simpo_gamma",
       .type = Type::real,
       .fallback = "0.5",
       .note = "simpo: the margin that is asked for",
       .min = 0},
      {.key = "dstrain.objective.center_rewards_coefficient",
       .type = Type::real,
       .fallback = "0",
       .note =
           "reward: the loss has this times the square of the sum of a pair's scores, too, which "
           "keeps their mean near 0: 0.01",
       .min = 0},
      {.key = "dstrain.objective.kd_ratio",
       .type = Type::real,
       .fallback = "0.5",
       .note = "distill: the part of the loss that is the divergence from the teacher; the rest is "
               "the cross-entropy of the targets",
       .min = 0,
       .max = 1},
      {.key = "dstrain.objective.teacher_top_k",
       .type = Type::integer,
       .fallback = "64",
       .note = "distill: for how many tokens at each place FILE.teacher has the teacher's "
               "log-probabilities",
       .min = 1,
       .max = 1023},
      {.key = "dstrain.objective.desirable_weight",
       .type = Type::real,
       .fallback = "1",
       .note = "kto: the weight of the losses of desirable answers",
       .min = 0},
      {.key = "dstrain.objective.undesirable_weight",
       .type = Type::real,
       .fallback = "1",
       .note = "kto: the weight of the losses of undesirable answers",
       .min = 0},
  };
}

}  // namespace dstrain::keys
