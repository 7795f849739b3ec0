#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "runtime/comm/host_comm.h"
#include "runtime/comm/mpi_comm.h"
#include "runtime/comm/mpi_session.h"
#include "runtime/comm/shared_comm.h"
#include "runtime/comm/world.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// DSTRAIN_COMM, taken apart.
struct Choice {
  bool messages = false;   // between all ranks
  std::vector<int> hosts;  // by rank, pretended; empty: only what is so
};

[[noreturn]] void refuse(std::string_view text, const std::string& expected) {
  fail_user("the environment variable DSTRAIN_COMM is '{}', expected {}", text, expected);
}

// "2": so many hosts with the ranks in even blocks; "0,1,1": the host of each rank.
std::vector<int> pretended_hosts(std::string_view whole, std::string_view text, int ranks) {
  std::vector<int> numbers;
  while (true) {
    const size_t comma = std::min(text.find(','), text.size());
    int number = -1;
    const auto [end, error] = std::from_chars(text.data(), text.data() + comma, number);
    if (error != std::errc() || end != text.data() + comma || number < 0)
      refuse(whole, "numbers after 'hosts:'");
    numbers.push_back(number);
    if (comma == text.size()) break;
    text.remove_prefix(comma + 1);
  }
  if (numbers.size() > 1) {
    if (static_cast<int>(numbers.size()) != ranks)
      refuse(whole, fmt::format("a host for each of {} ranks", ranks));
    return numbers;
  }
  const int hosts = numbers.front();
  if (hosts < 1 || hosts > ranks) refuse(whole, fmt::format("1 to {} hosts", ranks));
  std::vector<int> of_rank;
  for (int r = 0; r < ranks; ++r) of_rank.push_back(r * hosts / ranks);
  return of_rank;
}

Choice choice_from_environment(int ranks) {
  constexpr std::string_view kHosts = "hosts:";
  const char* value = std::getenv("DSTRAIN_COMM");
  const std::string_view text = value ? value : "";
  if (text.starts_with(kHosts))
    return {false, pretended_hosts(text, text.substr(kHosts.size()), ranks)};
  if (text != "" && text != "auto" && text != "mpi")
    refuse(text, "'auto', 'mpi', 'hosts:N' or 'hosts:0,0,1,...'");
  return {text == "mpi", {}};
}

bool few_enough(const HostMap& hosts) {
  for (int h = 0; h < hosts.hosts(); ++h)
    if (hosts.ranks_on(h) > kMaxRanks) return false;
  return true;
}

// Over shared memory within machines; nullptr where a machine's ranks cannot share any.
std::unique_ptr<Communicator> share_memory(std::unique_ptr<MpiSession>& mpi, Peers& peers,
                                           const CommOptions& options) {
  const HostMap& hosts = peers.hosts();
  const bool one = hosts.hosts() == 1;
  const int64_t bounce =
      std::max(SharedGroup::kBounceBytes, one ? 0 : Exchange::least_bounce_bytes(hosts));
  std::string why;
  auto group = SharedGroup::open(*mpi, peers, bounce, why);
  if (group && one)
    return std::make_unique<SharedComm>(std::move(mpi), std::move(peers), std::move(group),
                                        options);
  if (group)
    return std::make_unique<HostComm>(std::move(mpi), std::move(peers), std::move(group), options);
  if (mpi->rank() != 0) return nullptr;
  const std::string text =
      fmt::format("the ranks cannot share memory, messages are used instead (slower){}{}",
                  why.empty() ? "" : ": ", why);
  if (options.warn)
    options.warn(text);
  else
    std::fprintf(stderr, "dstrain: warning: %s\n", text.c_str());
  return nullptr;
}

}  // namespace

std::unique_ptr<Communicator> join_world(const CommOptions& options) {
  const Choice choice = choice_from_environment(world_size_from_environment());
  auto mpi = std::make_unique<MpiSession>();
  Peers peers(*mpi, choice.hosts.empty() ? 0 : choice.hosts[static_cast<size_t>(mpi->rank())]);
  if (!choice.messages && few_enough(peers.hosts()))
    if (auto comm = share_memory(mpi, peers, options)) return comm;
  return std::make_unique<MpiComm>(std::move(mpi), std::move(peers), options);
}

}  // namespace dstrain
