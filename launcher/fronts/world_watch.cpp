#include "launcher/fronts/world_watch.h"

#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <climits>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "launcher/connection/line_channel.h"
#include "launcher/connection/network.h"
#include "launcher/connection/secret.h"
#include "launcher/connection/tcp_socket.h"
#include "launcher/input/exchange_texts.h"
#include "launcher/placement/machine.h"
#include "launcher/supervise/watchers/watch_address.h"
#include "launcher/supervise/watchers/watch_task.h"
#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"
#include "runtime/core/futex.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

using nlohmann::json;

// How long the watchers may take to order the end.
constexpr std::chrono::seconds kOrderTimeout{8};

// Returns the ranks of each host. Hosts are numbered by their first ranks, as in HostMap.
std::vector<std::vector<int>> ranks_of_hosts(const Communicator& comm) {
  std::vector<std::vector<int>> hosts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto host = static_cast<size_t>(comm.host_of(rank));
    if (host >= hosts.size()) hosts.resize(host + 1);
    hosts[host].push_back(rank);
  }
  return hosts;
}

// Returns what each rank tells the others about itself. `first`: whether it is the first of its host, of several.
json introduction(const RankBoard& board, bool first, const std::string& secret) {
  json mine{{"board", board.address()},
            {"host", to_json_text(host_name())},
            {"secret", secret.empty() ? "" : hmac_sha256(secret, "dstrain secret of a rank")}};
  if (first) mine["addresses"] = own_addresses();
  return mine;
}

// Where the watchers of several hosts meet.
struct Meeting {
  std::optional<TcpListener> listener;  // on rank 0
  std::vector<std::string> addresses;
  int port = 0;
  std::string token;
};

// Returns the addresses at which others find what listens at `address`.
json addresses_at(const std::string& address) {
  if (address != "0.0.0.0") return json::array({address});
  json all = json::array();
  for (const InterfaceAddress& own : own_addresses()) all.push_back(own.address);
  return all;
}

// Lets rank 0 listen, and tells all ranks where. `ranks`: what they have told about themselves; `hosts`: the ranks of
// each host. Collective. Throws UserError, on all ranks, if that is impossible at `master_addr`.
Meeting meeting_of_watchers(Communicator& comm, const std::vector<json>& ranks,
                            const std::vector<std::vector<int>>& hosts,
                            const std::string& master_addr) {
  Meeting meeting;
  json told;
  if (comm.rank() == 0) {
    try {
      std::vector<std::vector<InterfaceAddress>> others;
      for (size_t host = 1; host < hosts.size(); ++host)
        others.push_back(ranks[static_cast<size_t>(hosts[host].front())]
                             .at("addresses")
                             .get<std::vector<InterfaceAddress>>());
      const std::string address = watch_address(master_addr, host_name(), others);
      meeting.listener = TcpListener::at(0, address);
      if (!meeting.listener)
        fail_user("cannot listen for the watchers of other hosts at {}: {}", address,
                  system_reason(errno));
      told = {{"addresses", addresses_at(address)},
              {"port", meeting.listener->port()},
              {"token", random_hex()}};
    } catch (const UserError& e) {
      told = {{"error", to_json_text(e.what())}};
    }
  }
  told = json::parse(broadcast_text(comm, told.dump(), 0));
  if (told.contains("error")) fail_user("{}", from_json_text(told.at("error").get<std::string>()));
  told.at("addresses").get_to(meeting.addresses);
  told.at("port").get_to(meeting.port);
  told.at("token").get_to(meeting.token);
  return meeting;
}

// Throws UserError if a rank has another secret than rank 0, because the watchers would not know each other.
void check_same_secret(const std::vector<json>& ranks) {
  const json& first = ranks.front();
  for (size_t rank = 1; rank < ranks.size(); ++rank)
    if (ranks[rank].at("secret") != first.at("secret"))
      fail_user(
          "rank {} on {} has another secret than rank 0 on {}: give all ranks the same "
          "--secret_file or {}",
          rank, from_json_text(ranks[rank].at("host").get<std::string>()),
          from_json_text(first.at("host").get<std::string>()), kSecretVariable);
}

}  // namespace

WorldWatch::WorldWatch(Communicator& comm, const Job& job, const std::string& secret,
                       const std::string& master_addr)
    : comm_(comm) {
  const int rank = comm.rank();
  if (comm.size() == 1) {
    board_.emplace(RankBoard::create(1));
    return;
  }
  const std::vector<std::vector<int>> hosts = ranks_of_hosts(comm);
  const auto host = static_cast<size_t>(comm.host_of(rank));
  const int first = hosts[host].front();
  RankBoard own = RankBoard::create(comm.size());
  std::vector<json> all;
  const json told = introduction(own, hosts.size() > 1 && rank == first, secret);
  for (const std::string& text : gather_texts(comm, told.dump())) all.push_back(json::parse(text));
  Meeting meeting;
  if (hosts.size() > 1) {
    check_same_secret(all);
    meeting = meeting_of_watchers(comm, all, hosts, master_addr);
  }
  if (hosts.size() > 1 && rank == 0 && secret.empty())
    log::info(
        "without a secret whoever reads what the hosts tell each other can report failures that "
        "end the run: --secret_file keeps them out (Open MPI's own ports stay open)");

  bool shared = true;
  try {
    board_.emplace(rank == first ? std::move(own)
                                 : RankBoard::attach(all[static_cast<size_t>(first)].at("board")));
  } catch (const RunError& e) {
    shared = false;
    log::warn("rank {} cannot be watched: {}", rank, e.what());
    board_.emplace(std::move(own));
  }
  RankSlot& slot = board_->slot(rank);
  slot.pid.store(::getpid());
  slot.set_state(RankState::starting);
  comm.report_to(&slot);

  const double mine = shared ? 1 : 0;
  std::vector<double> watched(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, watched);
  if (rank == first) {
    WatchTask task{.host = static_cast<int>(host),
                   .names = {},
                   .ranks = {},
                   .board = board_->address(),
                   .timeout_s = job.timeout_s,
                   .silence_s = job.silence_s,
                   .listener = meeting.listener ? meeting.listener->descriptor() : -1,
                   .addresses = meeting.addresses,
                   .port = meeting.port,
                   .key = secret.empty() || hosts.size() == 1
                              ? meeting.token
                              : hmac_sha256(secret, "dstrain watchers " + meeting.token)};
    for (const std::vector<int>& ranks : hosts) {
      task.names.push_back(
          from_json_text(all[static_cast<size_t>(ranks.front())].at("host").get<std::string>()));
      std::vector<int>& those = task.ranks.emplace_back();
      for (const int r : ranks)
        if (watched[static_cast<size_t>(r)] != 0) those.push_back(r);
    }
    start_watcher(task);
  }
  order_thread_ = std::thread([this] { end_on_order(); });
}

WorldWatch::~WorldWatch() {
  comm_.report_to(nullptr);
  over_ = true;
  if (!order_thread_.joinable()) return;
  futex_wake(board_->end_word(), INT_MAX);
  order_thread_.join();
}

// Ends this process as soon as the order comes, whatever its other threads do.
void WorldWatch::end_on_order() const {
  while (!over_) {
    if (const int status = board_->ordered_end(); status != 0) std::_Exit(status);
    futex_wait(board_->end_word(), 0, std::chrono::milliseconds(500));
  }
}

void WorldWatch::wait_for_end_order() const {
  if (order_thread_.joinable()) std::this_thread::sleep_for(kOrderTimeout);
}

}  // namespace dstrain
