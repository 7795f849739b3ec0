#include "launcher/fronts/elastic.h"

#include <algorithm>

#include "runtime/config/text.h"
#include "runtime/core/error.h"

namespace dstrain {

std::vector<HostRanks> hosts_without(const std::vector<HostRanks>& hosts,
                                     const std::vector<std::string>& names) {
  std::vector<HostRanks> rest;
  int ranks = 0;
  for (const HostRanks& host : hosts) {
    if (std::ranges::find(names, host.host) != names.end()) continue;
    rest.push_back(host);
    rest.back().first_rank = ranks;
    ranks += host.ranks();
  }
  return rest;
}

std::string reason_against_ranks(const ConfigRequest& request, int64_t train_batch, int ranks) {
  if (ranks == 0) return "no host remains";
  ConfigRequest smaller = request;
  smaller.ranks = ranks;
  smaller.ranks_origin = "the hosts that remain";
  try {
    const int64_t batch = load_config(smaller).job.batch.train_batch;
    if (batch == train_batch) return "";
    return fmt::format(
        "{} would make a global batch of {} instead of {}: give train_batch_size and "
        "train_micro_batch_size_per_gpu, and leave gradient_accumulation_steps out",
        counted(ranks, "rank"), batch, train_batch);
  } catch (const UserError& e) {
    return e.what();
  }
}

void check_elastic(const std::vector<HostRanks>& hosts, const ConfigRequest& request,
                   int64_t train_batch) {
  std::string first_reason;
  for (const HostRanks& host : hosts) {
    int ranks = 0;
    for (const HostRanks& other : hosts_without(hosts, {host.host})) ranks += other.ranks();
    const std::string reason = reason_against_ranks(request, train_batch, ranks);
    if (reason.empty()) return;
    if (first_reason.empty()) first_reason = fmt::format("without {}: {}", host.host, reason);
  }
  fail_user("--elastic: no host could be left out; {}", first_reason);
}

}  // namespace dstrain
