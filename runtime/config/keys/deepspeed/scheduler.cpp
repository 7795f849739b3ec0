// Section scheduler: DeepSpeed's five learning-rate schedules.
#include <fmt/format.h>

#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/text.h"

namespace dstrain::keys {
namespace {

constexpr std::string_view kOurs = "LRRangeTest|OneCycle|WarmupLR|WarmupDecayLR|WarmupCosineLR";
constexpr std::string_view kTorchSchedules =
    "LambdaLR|MultiplicativeLR|StepLR|MultiStepLR|ConstantLR|LinearLR|ExponentialLR|PolynomialLR|"
    "CosineAnnealingLR|ChainedScheduler|SequentialLR|ReduceLROnPlateau|CyclicLR|OneCycleLR|"
    "CosineAnnealingWarmRestarts";

constexpr Rule kScheduleType{
    [](const Facts&, const KeySpec&, const Node& value) -> Judgement {
      if (one_of(kOurs, value.text)) return {};
      if (one_of(kTorchSchedules, value.text))
        return {State::refused, fmt::format("{} of PyTorch is not part of dstrain: use one of {}",
                                            value.text, fmt::join(split_words(kOurs), ", "))};
      const std::string near = nearest(value.text, split_words(kOurs));
      return {State::error,
              fmt::format("unknown scheduler \"{}\"{}", printable(value.text),
                          near.empty()
                              ? fmt::format(": use one of {}", fmt::join(split_words(kOurs), ", "))
                              : fmt::format(" (did you mean \"{}\"?)", near))};
    },
    "LRRangeTest, OneCycle, WarmupLR, WarmupDecayLR, WarmupCosineLR: honoured; schedules of "
    "PyTorch: refused"};

constexpr std::string_view kWarmups = "log|linear";

constexpr Rule kWarmupType{
    [](const Facts&, const KeySpec& spec, const Node& value) -> Judgement {
      if (one_of(kWarmups, value.text)) return {};
      const std::string near = nearest(value.text, split_words(spec.choices));
      return {
          State::error,
          fmt::format("expected one of \"log\", \"linear\", found \"{}\"{}", printable(value.text),
                      near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near))};
    },
    "log, linear: honoured; else error"};

}  // namespace

std::vector<KeySpec> scheduler() {
  constexpr std::string_view warm = "WarmupLR|WarmupDecayLR|WarmupCosineLR";
  constexpr std::string_view linear = "WarmupLR|WarmupDecayLR";
  constexpr std::string_view decaying = "WarmupDecayLR|WarmupCosineLR";
  constexpr std::string_view cosine = "WarmupCosineLR";
  constexpr std::string_view range = "LRRangeTest";
  constexpr std::string_view cycle = "OneCycle";
  const auto real = [](std::string_view key, std::string_view fallback, std::string_view only,
                       std::string_view note = {}) {
    return KeySpec{
        .key = key, .type = Type::rate, .fallback = fallback, .note = note, .min = 0, .only = only};
  };
  const auto automatic = [](KeySpec spec, std::string_view value) {
    spec.automatic = value;  // of Hugging Face's TrainingArguments
    return spec;
  };
  const auto count = [](std::string_view key, std::string_view fallback, std::string_view only,
                        double min, std::string_view note = {}) {
    return KeySpec{.key = key,
                   .type = Type::integer,
                   .fallback = fallback,
                   .note = note,
                   .min = min,
                   .max = kMaxCount,
                   .only = only};
  };
  return {
      {.key = "scheduler", .type = Type::section, .note = "absent: a constant learning rate"},
      {.key = "scheduler.type",
       .type = Type::string,
       .note = "the schedule; case matters; auto: a constant learning rate",
       .rule = &kScheduleType,
       .choices = kOurs},
      {.key = "scheduler.params", .type = Type::section},
      count(
          "scheduler.params.last_batch_iteration", "-1", kOurs, -1,
          "the iteration at which the schedule begins, for a run that goes on from weights alone; "
          "-1: at its first value"),
      automatic(real("scheduler.params.warmup_min_lr", "0", linear), "0"),
      real("scheduler.params.warmup_max_lr", "", "WarmupLR",
           "unset: the optimizer's lr; auto: that, or 5e-5 where it is not given"),
      real("scheduler.params.warmup_max_lr", "0.001", "WarmupDecayLR",
           "auto: the optimizer's lr, or 5e-5 where it is not given"),
      automatic(count("scheduler.params.warmup_num_steps", "1000", warm, 1), "1"),
      {.key = "scheduler.params.warmup_type",
       .type = Type::string,
       .fallback = "\"log\"",
       .note = "log or linear; case matters",
       .rule = &kWarmupType,
       .choices = kWarmups,
       .only = warm},
      count("scheduler.params.total_num_steps", "", decaying, 1, "required; auto: dstrain.steps"),
      real("scheduler.params.warmup_min_ratio", "0", cosine),
      real("scheduler.params.cos_min_ratio", "0.0001", cosine),
      real("scheduler.params.lr_range_test_min_lr", "0.001", range),
      count("scheduler.params.lr_range_test_step_size", "2000", range, 1),
      real("scheduler.params.lr_range_test_step_rate", "1.0", range),
      {.key = "scheduler.params.lr_range_test_staircase", .fallback = "false", .only = range},
      real("scheduler.params.cycle_min_lr", "", cycle, "required"),
      real("scheduler.params.cycle_max_lr", "", cycle, "required"),
      real("scheduler.params.decay_lr_rate", "0", cycle),
      count("scheduler.params.cycle_first_step_size", "2000", cycle, 1),
      count("scheduler.params.cycle_second_step_size", "", cycle, 0,
            "unset: cycle_first_step_size"),
      count("scheduler.params.cycle_first_stair_count", "0", cycle, 0),
      count("scheduler.params.cycle_second_stair_count", "", cycle, 0,
            "unset: cycle_first_stair_count"),
      count("scheduler.params.decay_step_size", "0", cycle, 0),
      {.key = "scheduler.params.cycle_momentum",
       .fallback = "true",
       .note = "moves beta1 against the learning rate; off where the optimizer has no betas, and "
               "with Muon",
       .only = cycle},
      {.key = "scheduler.params.cycle_min_mom",
       .type = Type::rate,
       .fallback = "0.8",
       .min = 0,
       .max = 1,
       .open = true,
       .only = cycle},
      {.key = "scheduler.params.cycle_max_mom",
       .type = Type::rate,
       .fallback = "0.9",
       .min = 0,
       .max = 1,
       .open = true,
       .only = cycle},
      real(
          "scheduler.params.decay_mom_rate", "0", cycle,
          "as in DeepSpeed, beta1 grows by it after the cycle; an error where that is 1 within the "
          "run's steps"),
  };
}

}  // namespace dstrain::keys
