#include "launcher/fronts/world_watch.h"

#include <unistd.h>

#include <chrono>
#include <climits>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "launcher/hosts/channel.h"
#include "launcher/hosts/network.h"
#include "launcher/input/exchange_texts.h"
#include "launcher/placement/machine.h"
#include "launcher/supervise/watchers/watch_socket.h"
#include "launcher/supervise/watchers/watch_task.h"
#include "runtime/core/error.h"
#include "runtime/core/futex.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

using nlohmann::json;

// How long the watchers may take to name a culprit.
constexpr std::chrono::seconds kForAnOrder{8};

// Hosts by their first ranks, as HostMap numbers them: the ranks of each.
std::vector<std::vector<int>> ranks_of_hosts(const Communicator& comm) {
  std::vector<std::vector<int>> hosts;
  for (int rank = 0; rank < comm.size(); ++rank) {
    const auto host = static_cast<size_t>(comm.host_of(rank));
    if (host >= hosts.size()) hosts.resize(host + 1);
    hosts[host].push_back(rank);
  }
  return hosts;
}

std::string random_word() {
  std::random_device device;
  return fmt::format("{:08x}{:08x}{:08x}", device(), device(), device());
}

// What each rank says about itself, rank 0 about its watcher too.
json introduction(const RankBoard& board, const std::optional<WatchListener>& listener) {
  json mine{{"board", board.address()}, {"host", to_json_text(host_name())}};
  if (!listener) return mine;
  json addresses = json::array();
  for (const InterfaceAddress& own : own_addresses()) addresses.push_back(own.address);
  addresses.push_back("127.0.0.1");  // of hosts that share this one's network
  mine.update({{"addresses", addresses}, {"port", listener->port()}, {"token", random_word()}});
  return mine;
}

}  // namespace

WorldWatch::WorldWatch(Communicator& comm, const Job& job) : comm_(comm) {
  const int rank = comm.rank();
  if (comm.size() == 1) {
    board_.emplace(RankBoard::create(1));
    return;
  }
  const std::vector<std::vector<int>> hosts = ranks_of_hosts(comm);
  const auto host = static_cast<size_t>(comm.host_of(rank));
  const int first = hosts[host].front();
  std::optional<WatchListener> listener;
  if (rank == 0 && hosts.size() > 1) listener.emplace();
  RankBoard own = RankBoard::create(comm.size());
  std::vector<json> all;
  for (const std::string& text : gather_texts(comm, introduction(own, listener).dump()))
    all.push_back(json::parse(text));

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
                   .listener = listener ? listener->descriptor() : -1,
                   .addresses = {},
                   .port = 0,
                   .token = {}};
    for (const std::vector<int>& ranks : hosts) {
      task.names.push_back(
          from_json_text(all[static_cast<size_t>(ranks.front())].at("host").get<std::string>()));
      std::vector<int>& those = task.ranks.emplace_back();
      for (const int r : ranks)
        if (watched[static_cast<size_t>(r)] != 0) those.push_back(r);
    }
    if (hosts.size() > 1) {
      all.front().at("addresses").get_to(task.addresses);
      all.front().at("port").get_to(task.port);
      all.front().at("token").get_to(task.token);
    }
    start_watcher(task);
  }
  obedient_ = std::thread([this] { obey(); });
}

WorldWatch::~WorldWatch() {
  comm_.report_to(nullptr);
  over_ = true;
  if (!obedient_.joinable()) return;
  futex_wake(board_->end_word(), INT_MAX);
  obedient_.join();
}

// Ends this process as soon as that is ordered, whatever its other threads do.
void WorldWatch::obey() const {
  while (!over_) {
    if (const int status = board_->ordered_end(); status != 0) std::_Exit(status);
    futex_wait(board_->end_word(), 0, std::chrono::milliseconds(500));
  }
}

void WorldWatch::await_order() const {
  if (obedient_.joinable()) std::this_thread::sleep_for(kForAnOrder);
}

}  // namespace dstrain
