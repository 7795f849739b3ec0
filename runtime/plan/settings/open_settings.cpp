#include "runtime/plan/settings/open_settings.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "runtime/config/family/family.h"
#include "runtime/plan/settings/fit.h"

namespace dstrain {
namespace {

constexpr int64_t kMostPieces = 16;

// What is settled together.
struct OpenChoice {
  bool losses = false, gathers = false, mlps = false;

  bool in_pieces() const { return losses || mlps; }
  Job of(const Job& job, int64_t pieces) const {
    Job changed = job;
    if (losses) changed.loss_chunks = pieces;
    if (mlps) changed.mlp_chunks = pieces;
    if (gathers) changed.gather_again = GatherAgain::on;
    return changed;
  }
};

// What can be settled, the cheapest first.
constexpr std::array kOpenChoices{
    OpenChoice{.losses = true},
    OpenChoice{.gathers = true},
    OpenChoice{.losses = true, .gathers = true},
    OpenChoice{.mlps = true},
    OpenChoice{.losses = true, .mlps = true},
    OpenChoice{.gathers = true, .mlps = true},
    OpenChoice{.losses = true, .gathers = true, .mlps = true},
};

OpenChoice open_in(const Job& job) {
  return {.losses = job.loss_chunks == 0 && job.model.measures().divides_loss,
          .gathers = job.gather_again == GatherAgain::automatic && can_gather_again(job),
          .mlps = job.mlp_chunks == 0};
}

}  // namespace

Job with_most_settled(const Job& job) {
  return open_in(job).of(job, kMostPieces);
}

std::optional<Job> made_to_fit(const Job& job, const std::function<bool(const Job&)>& fits) {
  const OpenChoice open = open_in(job);
  if (!(open.in_pieces() || open.gathers) || !fits(with_most_settled(job))) return std::nullopt;
  for (const OpenChoice& choice : kOpenChoices) {
    if ((choice.losses && !open.losses) || (choice.gathers && !open.gathers) ||
        (choice.mlps && !open.mlps) || !fits(choice.of(job, kMostPieces)))
      continue;
    if (choice.in_pieces())
      for (int64_t pieces = 2; pieces < kMostPieces; pieces *= 2)
        if (Job changed = choice.of(job, pieces); fits(changed)) return changed;
    return choice.of(job, kMostPieces);
  }
  return std::nullopt;
}

std::vector<SettledSetting> settled_between(const Job& before, const Job& job) {
  std::vector<SettledSetting> settled;
  const auto add = [&](bool changed, const char* key, std::string value, const char* why) {
    if (changed)
      settled.push_back(
          {key, std::move(value), fmt::format("the memory does not suffice {}", why)});
  };
  add(job.gather_again != before.gather_again, "dstrain.gather_again", "true",
      "to keep what tensor ranks gather");
  add(job.loss_chunks != before.loss_chunks, "dstrain.loss_chunks", std::to_string(job.loss_chunks),
      "for the logits of all rows");
  add(job.mlp_chunks != before.mlp_chunks, "dstrain.mlp_chunks", std::to_string(job.mlp_chunks),
      "for the hidden values of all rows");
  return settled;
}

}  // namespace dstrain
