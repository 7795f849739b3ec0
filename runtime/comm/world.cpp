#include "runtime/comm/world.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "runtime/comm/rendezvous/board_rendezvous.h"
#include "runtime/comm/self_comm.h"
#include "runtime/comm/shared/shared_comm.h"
#include "runtime/comm/world_environment.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

[[noreturn]] void refuse(std::string_view text, const std::string& expected) {
  fail_user("the environment variable DSTRAIN_COMM is '{}', expected {}", text, expected);
}

// Returns the host of each rank. "2": two hosts, with the ranks in even blocks; "0,1,1": one number per
// rank.
std::vector<int> parse_hosts(std::string_view whole, std::string_view text, int ranks) {
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

TransportChoice choice_from_environment(int ranks) {
  constexpr std::string_view kHosts = "hosts:";
  const char* value = std::getenv("DSTRAIN_COMM");
  const std::string_view text = value ? value : "";
  if (text.starts_with(kHosts))
    return {true, false, parse_hosts(text, text.substr(kHosts.size()), ranks)};
  if (text != "" && text != "auto" && text != "mpi")
    refuse(text, "'auto', 'mpi', 'hosts:N' or 'hosts:0,0,1,...'");
  return {text == "mpi", text == "mpi", {}};
}

// Returns whether all ranks have the same board and can use the default transport.
bool meet_on_board(const CommOptions& options, const TransportChoice& choice) {
  const int ranks = world_size_from_environment();
  return options.board != nullptr && options.board->ranks() == ranks &&
         ranks_on_this_host_from_environment() == ranks && ranks <= kMaxRanks && !choice.asked_for;
}

// Returns a communicator without MPI, or nullptr if the ranks cannot share memory.
std::unique_ptr<Communicator> join_on_board(const CommOptions& options) {
  auto ranks = std::make_unique<BoardRendezvous>(*options.board, world_rank_from_environment(),
                                                 options.deadline_seconds);
  Peers peers(*ranks, 0);
  std::string why;
  auto group = peers.hosts().hosts() == 1
                   ? SharedGroup::open(*ranks, peers, SharedGroup::kBounceBytes, why)
                   : nullptr;
  if (group)
    return std::make_unique<SharedComm>(std::move(ranks), std::move(peers), std::move(group),
                                        options);
  warn_of_messages(options, ranks->rank(), why);
  return nullptr;
}

}  // namespace

std::vector<int> pretended_hosts(int ranks) {
  std::vector<int> hosts = choice_from_environment(ranks).hosts;
  if (hosts.empty()) hosts.assign(static_cast<size_t>(ranks), 0);
  return hosts;
}

void warn_of_messages(const CommOptions& options, int rank, const std::string& why) {
  if (rank != 0) return;
  const std::string text =
      fmt::format("the ranks cannot share memory, messages are used instead (slower){}{}",
                  why.empty() ? "" : ": ", why);
  if (options.warn)
    options.warn(text);
  else
    std::fprintf(stderr, "dstrain: warning: %s\n", text.c_str());
}

std::unique_ptr<Communicator> make_communicator(const CommOptions& options) {
  if (world_size_from_environment() <= 1) return std::make_unique<SelfComm>();
  TransportChoice choice = choice_from_environment(world_size_from_environment());
  if (meet_on_board(options, choice)) {
    if (auto comm = join_on_board(options)) return comm;
    choice.messages = true;
  }
  if (started_without_mpirun() && !choice.asked_for && world_size_from_environment() > kMaxRanks)
    fail_user(
        "{} ranks are to run on this machine, and at most {} can share its memory: use fewer "
        "ranks{}",
        world_size_from_environment(), kMaxRanks,
        has_mpi() ? ", or add --launcher openmpi, whose ranks exchange messages (slower)" : "");
  if (started_without_mpirun())
    fail_user(
        "{}, and these were started without mpirun: {}, or {}",
        choice.asked_for ? "DSTRAIN_COMM asks for ranks that exchange messages"
                         : "ranks that cannot share memory exchange messages",
        has_mpi() ? "add --launcher openmpi" : "use a dstrain that is built with -DDSTRAIN_MPI=ON",
        choice.asked_for ? "unset DSTRAIN_COMM" : "use --num_gpus 1");
  return join_by_mpi(choice, options);
}

}  // namespace dstrain
