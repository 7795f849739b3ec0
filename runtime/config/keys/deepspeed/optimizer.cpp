// Section optimizer: the update rule and its parameters.
#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/keys/table/optimizer_types.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

constexpr std::string_view kTwoStages =
    "at stages 0 and 1, as each rank needs its whole gradients: use stage 1, or AdamW";
// The list of optimizers: all names in messages, choices and pages are made of it.
constexpr OptimizerType kOptimizerTypes[] = {
    {.name = "AdamW", .kind = OptimizerKind::adam},
    {.name = "Adam", .kind = OptimizerKind::adam},
    {.name = "SGD", .kind = OptimizerKind::sgd},
    {.name = "Adagrad", .kind = OptimizerKind::adagrad},
    {.name = "Lion", .kind = OptimizerKind::lion},
    {.name = "Lamb", .kind = OptimizerKind::lamb},
    {.name = "Muon",
     .kind = OptimizerKind::muon,
     .fixed_betas = "as in DeepSpeed, Muon's momentum and betas do not move"},
    {.name = "OneBitAdam",
     .kind = OptimizerKind::one_bit_adam,
     .highest_stage = 1,
     .stages = kTwoStages},
    {.name = "OneBitLamb",
     .kind = OptimizerKind::one_bit_lamb,
     .highest_stage = 1,
     .stages = kTwoStages},
    {.name = "ZeroOneAdam",
     .kind = OptimizerKind::zero_one_adam,
     .highest_stage = 0,
     .stages = "at stage 0, as each rank makes weights of its own of all masters and second "
               "moments: use stage 0, OneBitAdam at stage 1, or AdamW"},
    {.name = "AdamW8bit", .kind = OptimizerKind::adam_8bit},
    {.name = "PagedAdamW8bit", .kind = OptimizerKind::adam_8bit},
    {.name = "Lion8bit", .kind = OptimizerKind::lion_8bit},
};

// A text that the compiler puts together.
class TypesText {
 public:
  constexpr TypesText& add(std::string_view more) {
    for (const char c : more) text_[size_++] = c;
    return *this;
  }
  // Adds the names of all types, with `between` between two of them, but `last` between the last two.
  constexpr TypesText& add_names(std::string_view between, std::string_view last) {
    const size_t count = std::size(kOptimizerTypes);
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) add(i + 1 < count ? between : last);
      add(kOptimizerTypes[i].name);
    }
    return *this;
  }
  constexpr std::string_view text() const { return {text_.data(), size_}; }

 private:
  std::array<char, 512> text_{};
  size_t size_ = 0;
};

constexpr TypesText kNamesInMessages = TypesText().add_names(", ", " or "),
                    kNamesAsChoices = TypesText().add_names("|", "|"),
                    kPublishedTypes =
                        TypesText()
                            .add_names(", ", ", ")
                            .add(
                                " (any case, but SGD as it stands): honoured; MuAdam, MuAdamW, "
                                "MuSGD and the rest of torch.optim: refused");

// Classes, in lower case, and the types that make them.
constexpr std::pair<std::string_view, std::string_view> kClasses[] = {
    {"fusedadam|deepspeedcpuadam|cpuadam|fused_adam|cpu_adam|adamw_torch|adamw_torch_fused|"
     "adamw_hf",
     "AdamW"},
    {"fusedlamb|fused_lamb", "Lamb"},
    {"fusedlion|deepspeedcpulion|fused_lion|cpu_lion", "Lion"},
    {"deepspeedcpuadagrad|cpu_adagrad", "Adagrad"},
    {"adamw_8bit|adamw_bnb_8bit", "AdamW8bit"},
    {"paged_adamw_8bit", "PagedAdamW8bit"},
    {"lion_8bit|paged_lion_8bit|pagedlion8bit", "Lion8bit"},
};

}  // namespace

std::string_view optimizer_names() {
  return kNamesInMessages.text();
}

const OptimizerType* optimizer_type(std::string_view name) {
  const std::string lower = lower_case(std::string(name));
  if (lower == "sgd" && name != "SGD") return nullptr;
  for (const OptimizerType& known : kOptimizerTypes)
    if (lower_case(std::string(known.name)) == lower) return &known;
  return nullptr;
}

std::string_view type_of_class(std::string_view name) {
  const std::string lower = lower_case(name);
  for (const auto& [classes, type] : kClasses)
    if (one_of(classes, lower)) return type;
  return {};
}

const OptimizerType& optimizer_type_of(OptimizerKind kind) {
  return *std::ranges::find(kOptimizerTypes, kind, &OptimizerType::kind);
}

namespace keys {
namespace {

// Hugging Face's TrainingArguments.
constexpr std::string_view kAutoLr = "5e-5", kAutoBetas = "[0.9, 0.999]", kAutoEps = "1e-8";

constexpr std::string_view kMup = "muadam|muadamw|musgd";
constexpr std::string_view kTorch =
    "Adadelta|Adamax|ASGD|LBFGS|NAdam|RAdam|RMSprop|Rprop|SparseAdam|Adafactor";
constexpr std::string_view kAdam8bit = "adamw8bit|pagedadamw8bit";
constexpr std::string_view kOneBit = "onebitadam|onebitlamb|zerooneadam";
constexpr std::string_view kOneBitLamb = "onebitlamb";
constexpr std::string_view kZeroOne = "zerooneadam";

constexpr Rule kType{
    [](const Facts&, const KeySpec&, const Node& value) -> Judgement {
      const std::string& name = value.text;
      const std::string lower = lower_case(name);
      if (optimizer_type(name)) return {};
      if (one_of(kMup, lower) || one_of(kTorch, name))
        return {State::refused,
                fmt::format("{} is not part of dstrain: use {}", name, optimizer_names())};
      if (lower == "none")
        return {State::error, "no optimizer is called \"None\": remove the section for AdamW"};
      if (const std::string_view type = type_of_class(name); !type.empty())
        return {State::error,
                fmt::format("\"{}\" is the name of a class, which no type of DeepSpeed has: {} "
                            "computes the same",
                            printable(name), type)};
      const std::string near = nearest(name, split_words(kNamesAsChoices.text()));
      return {State::error,
              fmt::format("unknown optimizer \"{}\"{}", printable(name),
                          near.empty() ? fmt::format(": use {}", optimizer_names())
                                       : fmt::format(" (did you mean \"{}\"?)", near))};
    },
    kPublishedTypes.text()};

}  // namespace

std::vector<KeySpec> optimizer() {
  return {
      {.key = "optimizer", .type = Type::section, .note = "absent: AdamW with the defaults below"},
      {.key = "optimizer.type",
       .type = Type::string,
       .note = "the update rule; 1-bit optimizers were removed from DeepSpeed (0.19.8); those with "
               "state in 8 bits are bitsandbytes', and offload_optimizer moves their state, which "
               "makes PagedAdamW8bit the same as AdamW8bit",
       .rule = &kType,
       .choices = kNamesAsChoices.text()},
      {.key = "optimizer.params", .type = Type::section, .nullable = true},
      {.key = "optimizer.legacy_fusion",
       .fallback = "false",
       .state = State::no_effect,
       .note = "the update is always one pass"},
      {.key = "optimizer.params.max_grad_norm",
       .type = Type::real,
       .state = State::refused,
       .note = "DeepSpeed refuses it too: use gradient_clipping at the top level"},

      {.key = "optimizer.params.lr",
       .type = Type::real,
       .fallback = "0.01",
       .automatic = kAutoLr,
       .min = 0,
       .only = "adagrad"},
      {.key = "optimizer.params.lr",
       .type = Type::real,
       .fallback = "0.02",
       .automatic = kAutoLr,
       .note = "of hidden matrices; where it is given, also of the other parameters",
       .min = 0,
       .only = "muon"},
      {.key = "optimizer.params.lr",
       .type = Type::real,
       .fallback = "0.0001",
       .automatic = kAutoLr,
       .note = "bitsandbytes' default",
       .min = 0,
       .only = "lion8bit"},
      {.key = "optimizer.params.lr",
       .type = Type::real,
       .fallback = "0.001",
       .automatic = kAutoLr,
       .note = "learning rate; a scheduler with its own rate overrules it, with a warning where "
               "they differ",
       .min = 0},
      {.key = "optimizer.params.weight_decay",
       .type = Type::real,
       .fallback = "0.01",
       .automatic = "0",
       .note = "bitsandbytes' default",
       .min = 0,
       .only = kAdam8bit},
      {.key = "optimizer.params.weight_decay",
       .type = Type::real,
       .fallback = "0",
       .automatic = "0",
       .min = 0},
      {.key = "optimizer.params.betas",
       .type = Type::betas,
       .fallback = "[0.9, 0.95]",
       .automatic = kAutoBetas,
       .note = "of the weights that Muon leaves to Adam",
       .min = 0,
       .max = 1,
       .open = true,
       .only = "muon"},
      {.key = "optimizer.params.betas",
       .type = Type::betas,
       .fallback = "[0.9, 0.99]",
       .automatic = kAutoBetas,
       .note = "bitsandbytes' default",
       .min = 0,
       .max = 1,
       .open = true,
       .only = "lion8bit"},
      {.key = "optimizer.params.betas",
       .type = Type::betas,
       .fallback = "[0.9, 0.999]",
       .automatic = kAutoBetas,
       .note = "decay of the two moments",
       .min = 0,
       .max = 1,
       .open = true,
       .only = "adam|adamw|lamb|lion|onebitadam|onebitlamb|zerooneadam|adamw8bit|pagedadamw8bit"},
      {.key = "optimizer.params.eps",
       .type = Type::real,
       .fallback = "1e-10",
       .automatic = kAutoEps,
       .min = 0,
       .only = "adagrad|muon"},
      {.key = "optimizer.params.eps",
       .type = Type::real,
       .fallback = "1e-8",
       .automatic = kAutoEps,
       .min = 0,
       .only = "adam|adamw|lamb|onebitadam|onebitlamb|zerooneadam|adamw8bit|pagedadamw8bit"},
      {.key = "optimizer.params.bias_correction", .fallback = "true", .only = "adam|adamw|lamb"},
      {.key = "optimizer.params.bias_correction",
       .fallback = "false",
       .state = State::no_effect,
       .note = "as in DeepSpeed, its moments are not corrected",
       .only = kOneBit},

      {.key = "optimizer.params.min_8bit_size",
       .type = Type::integer,
       .fallback = "4096",
       .note =
           "elements of the smallest tensor whose state is in 8 bits; that of embeddings never is",
       .min = 0,
       .only = "adamw8bit|pagedadamw8bit|lion8bit"},

      {.key = "optimizer.params.momentum",
       .type = Type::real,
       .fallback = "0",
       .min = 0,
       .only = "sgd"},
      {.key = "optimizer.params.dampening", .type = Type::real, .fallback = "0", .only = "sgd"},
      {.key = "optimizer.params.nesterov",
       .fallback = "false",
       .note = "needs a momentum and no dampening",
       .only = "sgd"},

      {.key = "optimizer.params.max_coeff",
       .type = Type::real,
       .fallback = "10",
       .min = 0,
       .only = "lamb|onebitlamb"},
      {.key = "optimizer.params.min_coeff",
       .type = Type::real,
       .fallback = "0.01",
       .min = 0,
       .only = "lamb|onebitlamb"},
      {.key = "optimizer.params.eps_inside_sqrt", .fallback = "false", .only = "lamb"},
      {.key = "optimizer.params.eps_inside_sqrt",
       .fallback = "false",
       .state = State::no_effect,
       .note = "as in DeepSpeed, eps is outside",
       .only = kOneBit},
      {.key = "optimizer.params.freeze_step",
       .type = Type::integer,
       .fallback = "100000",
       .note = "updates, after which the second moment is frozen and momenta travel as signs",
       .min = 1,
       .only = "onebitadam|onebitlamb"},
      {.key = "optimizer.params.cuda_aware",
       .fallback = "false",
       .state = State::no_effect,
       .note = "momenta travel as everything else does",
       .only = kOneBit},
      {.key = "optimizer.params.comm_backend_name",
       .type = Type::choice,
       .fallback = "\"nccl\"",
       .state = State::no_effect,
       .note = "momenta travel as everything else does",
       .choices = "nccl|mpi|hccl|compressed",
       .only = kOneBit},
      {.key = "optimizer.params.coeff_beta",
       .type = Type::real,
       .fallback = "0.9",
       .note = "of the average of trust ratios until freeze_step",
       .min = 0,
       .max = 1,
       .open = true,
       .only = kOneBitLamb},
      {.key = "optimizer.params.factor_max",
       .type = Type::real,
       .fallback = "4",
       .note = "limit of the factor that frozen trust ratios are multiplied by",
       .min = 0,
       .only = kOneBitLamb},
      {.key = "optimizer.params.factor_min",
       .type = Type::real,
       .fallback = "0.5",
       .note = "limit of the factor that frozen trust ratios are multiplied by",
       .min = 0,
       .only = kOneBitLamb},
      {.key = "optimizer.params.factor_threshold",
       .type = Type::real,
       .fallback = "0.1",
       .note = "by which share of itself the factor may change in an update",
       .min = 0,
       .only = kOneBitLamb},
      {.key = "optimizer.params.var_freeze_step",
       .type = Type::integer,
       .fallback = "100000",
       .note = "updates, after which the second moment is frozen and local steps begin",
       .min = 1,
       .only = kZeroOne},
      {.key = "optimizer.params.var_update_scaler",
       .type = Type::integer,
       .fallback = "16",
       .note = "updates of the second moment, after which their interval doubles",
       .min = 1,
       .only = kZeroOne},
      {.key = "optimizer.params.local_step_scaler",
       .type = Type::integer,
       .fallback = "32678",
       .note = "local steps, after which the interval of synchronising doubles",
       .min = 1,
       .only = kZeroOne},
      {.key = "optimizer.params.local_step_clipper",
       .type = Type::integer,
       .fallback = "16",
       .note = "the longest interval of synchronising, in steps",
       .min = 1,
       .only = kZeroOne},
      {.key = "optimizer.params.muon_lr",
       .type = Type::real,
       .note = "overrules lr for hidden matrices: those whose names hold neither embed nor lm_head",
       .min = 0,
       .only = "muon"},
      {.key = "optimizer.params.adam_lr",
       .type = Type::real,
       .fallback = "0.0003",
       .note = "overrules lr for the other parameters, which AdamW updates",
       .min = 0,
       .only = "muon"},
      {.key = "optimizer.params.momentum",
       .type = Type::real,
       .fallback = "0.95",
       .note = "of hidden matrices, with Nesterov's step",
       .min = 0,
       .max = 1,
       .open = true,
       .only = "muon"},
      {.key = "optimizer.params.ns_method",
       .type = Type::choice,
       .fallback = "\"gram\"",
       .note = "gram: on the Gram matrix where that takes fewer FLOPs",
       .choices = "gram|standard",
       .only = "muon"},
  };
}

}  // namespace keys
}  // namespace dstrain
