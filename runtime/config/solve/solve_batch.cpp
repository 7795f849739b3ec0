#include "runtime/config/solve/solve_batch.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "runtime/config/keys/table/coerce.h"
#include "runtime/config/keys/table/key_table.h"
#include "runtime/config/text.h"

namespace dstrain {
namespace {

constexpr std::string_view kTrain = "train_batch_size";
constexpr std::string_view kMicro = "train_micro_batch_size_per_gpu";
constexpr std::string_view kAccumulation = "gradient_accumulation_steps";

struct Triple {
  int64_t train = 0, micro = 0, accumulation = 0;  // 0: not given
};

bool fits(const Triple& t, int64_t ranks) {  // each factor is below 2^31
  const int64_t per_rank = t.micro * t.accumulation;
  return per_rank > 0 && per_rank <= INT64_MAX / ranks && t.train == per_rank * ranks;
}

// Computes the missing sizes as DeepSpeed does, by floor division; fits() checks the result.
Triple complete(Triple t, int64_t ranks) {
  if (t.train && t.micro && t.accumulation) return t;
  if (t.train && t.micro) {
    t.accumulation = t.train / t.micro / ranks;
  } else if (t.train && t.accumulation) {
    t.micro = t.train / ranks / t.accumulation;
  } else if (t.train) {
    t.accumulation = 1;
    t.micro = t.train / ranks;
  } else {
    if (!t.accumulation) t.accumulation = 1;
    t.train = t.micro * t.accumulation <= INT64_MAX / ranks ? t.micro * t.accumulation * ranks : 0;
  }
  return t;
}

int64_t largest_divisor(int64_t n, int64_t limit) {
  for (int64_t d = std::min(n, limit); d > 1; --d)
    if (n % d == 0) return d;
  return 1;
}

std::string show(const Triple& t, int64_t ranks) {
  return fmt::format("{} {} = {} {} x {} {} x {}", kTrain, t.train, kMicro, t.micro, kAccumulation,
                     t.accumulation, counted(ranks, "rank"));
}

// Returns up to three valid alternatives to an impossible triple: with another total, another split, or another
// number of ranks.
std::vector<std::string> choices(const Triple& given, int64_t ranks) {
  std::vector<std::string> out;
  const auto offer = [&](const Triple& t, int64_t n) {
    if (fits(t, n)) out.push_back(show(t, n));
  };
  const int64_t micro = given.micro ? given.micro : 1;
  const int64_t accumulation =
      given.accumulation ? given.accumulation : std::max<int64_t>(1, given.train / micro / ranks);
  if (micro * accumulation <= INT64_MAX / ranks)
    offer({micro * accumulation * ranks, micro, accumulation}, ranks);
  if (given.train % ranks == 0) {
    const int64_t per_rank = given.train / ranks;
    const int64_t split = largest_divisor(per_rank, given.micro ? given.micro : per_rank);
    offer({given.train, split, per_rank / split}, ranks);
  }
  const int64_t fixed =
      (given.micro ? given.micro : 1) * (given.accumulation ? given.accumulation : 1);
  if (given.train % fixed == 0) {
    const int64_t n = given.micro && given.accumulation
                          ? given.train / fixed
                          : largest_divisor(given.train / fixed, ranks);
    offer(complete(given, n), n);
  }
  return out;
}

// Returns why no number of ranks makes this triple possible, or an empty string.
std::string impossible(const Triple& t) {
  const int64_t fixed = (t.micro ? t.micro : 1) * (t.accumulation ? t.accumulation : 1);
  if (!t.train || t.train % fixed == 0) return "";
  return fmt::format("{} {} is not a multiple of {}{}{}: no number of ranks fits", kTrain, t.train,
                     t.micro ? fmt::format("{} {}", kMicro, t.micro) : "",
                     t.micro && t.accumulation ? " x " : "",
                     t.accumulation ? fmt::format("{} {}", kAccumulation, t.accumulation) : "");
}

// Returns the settings of the micro-batch and the accumulation with which the batch, and with it the numbers of the run,
// stays as it is: they are made smaller. Empty where the ranks cannot share the batch. `ranks` are absent if no number
// fits.
std::vector<std::string> fitting_sizes(const Triple& given, std::optional<int64_t> ranks) {
  const int64_t n = ranks.value_or(1), accumulation = std::max<int64_t>(1, given.accumulation);
  if (given.train % n != 0) return {};
  const int64_t micro =
      given.micro ? given.micro : std::max<int64_t>(1, given.train / n / accumulation);
  const int64_t per_rank = given.train / n;
  Triple t;
  t.micro = largest_divisor(per_rank, micro);
  t.accumulation = per_rank / t.micro;
  if (!ranks) t.accumulation = largest_divisor(t.accumulation, accumulation);
  std::vector<std::string> settings;
  const auto change = [&](std::string_view key, int64_t from, int64_t to) {
    if (from != 0 && from != to) settings.push_back(fmt::format("{}={}", key, to));
  };
  change(kMicro, given.micro, t.micro);
  change(kAccumulation, given.accumulation, t.accumulation);
  return settings;
}

}  // namespace

BatchSolution solve_batch(Values& values, Diagnostics& diagnostics, std::optional<int64_t> ranks,
                          const std::string& ranks_origin) {
  const auto read = [&](std::string_view key) {
    const Member* member = values.given(key);
    return member ? *to_integer(member->value) : int64_t{0};
  };
  Triple given{read(kTrain), read(kMicro), read(kAccumulation)};
  for (std::string_view key : {kTrain, kMicro, kAccumulation})
    if (diagnostics.stopped(key)) return {};
  const bool by_default = !given.train && !given.micro;
  if (by_default) given.micro = kDefaultMicroBatch;
  if (!ranks) {
    if (const std::string why = impossible(given); !why.empty())
      diagnostics.contradiction(kTrain, why, fitting_sizes(given, ranks));
    if (by_default) values.integer(kMicro, given.micro, kHuggingFace);
    return {{given.train, given.micro, given.accumulation}, by_default};
  }
  const Triple t = complete(given, *ranks);
  if (!t.train) {
    diagnostics.error(kMicro, fmt::format("{} x {} {} x {} does not fit into 64 bits", t.micro,
                                          kAccumulation, t.accumulation, counted(*ranks, "rank")));
    return {};
  }
  if (!fits(t, *ranks)) {
    std::string said;
    for (const auto& [key, value] : {std::pair{kTrain, given.train},
                                     {kMicro, given.micro},
                                     {kAccumulation, given.accumulation}})
      if (value) said += fmt::format("{}{} {}", said.empty() ? "" : ", ", key, value);
    const auto offers = choices(given, *ranks);
    diagnostics.contradiction(
        kTrain,
        fmt::format("{} and {} ({}) do not fit: {} = {} x {} x ranks. Valid: {}", said,
                    counted(*ranks, "rank"), ranks_origin, kTrain, kMicro, kAccumulation,
                    fmt::join(offers, "; ")),
        fitting_sizes(given, ranks));
    return {};
  }
  const auto derived = [&](std::string_view key, int64_t value, const std::string& why) {
    values.integer(key, value, why);
  };
  const std::string of_ranks = counted(*ranks, "rank");
  derived(kTrain, t.train, fmt::format("{} x {} x {}", kMicro, kAccumulation, of_ranks));
  derived(kMicro, t.micro,
          by_default           ? std::string(kHuggingFace)
          : given.accumulation ? fmt::format("{} / {} / {}", kTrain, of_ranks, kAccumulation)
                               : fmt::format("{} / {}", kTrain, of_ranks));
  derived(kAccumulation, t.accumulation,
          given.train && given.micro ? fmt::format("{} / {} / {}", kTrain, kMicro, of_ranks)
                                     : std::string("one micro-batch per step"));
  return {{t.train, t.micro, t.accumulation}, by_default};
}

}  // namespace dstrain
