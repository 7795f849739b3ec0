#include "launcher/placement/gpus.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <sstream>

#include "launcher/placement/ranges_text.h"
#include "runtime/core/error.h"

namespace dstrain {

std::string gpus_text(const std::vector<HostRanks>& hosts) {
  std::vector<int> slots;
  bool needed = false;
  for (const HostRanks& host : hosts) {
    needed = needed || host.slots != first_numbers(host.ranks());
    slots.insert(slots.end(), host.slots.begin(), host.slots.end());
  }
  return needed ? fmt::format("{}", fmt::join(slots, ",")) : "";
}

int gpu_of_rank(const std::string& text, int rank, int rank_on_host, int gpus) {
  if (gpus == 0) return 0;
  if (text.empty()) return rank_on_host % gpus;
  std::istringstream in(text);
  std::string word;
  for (int r = 0; r <= rank; ++r)
    if (!std::getline(in, word, ','))
      fail_user("{} is '{}': it names no GPU for rank {}", kGpusVariable, text, rank);
  const int slot = std::atoi(word.c_str());
  if (slot >= gpus)
    fail_user(
        "rank {} has slot {} of its host, which has GPUs 0 to {}: choose other slots, or look at "
        "CUDA_VISIBLE_DEVICES there",
        rank, slot, gpus - 1);
  return slot;
}

}  // namespace dstrain
