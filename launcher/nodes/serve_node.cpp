#include "launcher/nodes/serve_node.h"

#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "launcher/cli/command_names.h"
#include "launcher/connection/handshake.h"
#include "launcher/connection/message.h"
#include "launcher/connection/network.h"
#include "launcher/connection/secret.h"
#include "launcher/connection/silence.h"
#include "launcher/connection/tcp_socket.h"
#include "launcher/nodes/node_address.h"
#include "launcher/nodes/served_relay.h"
#include "launcher/placement/machine.h"
#include "launcher/placement/ranges_text.h"
#include "launcher/process/stop_signals.h"
#include "launcher/process/stop_text.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

using nlohmann::json;

constexpr int kServeTickMs = 20;
constexpr int64_t kBetweenAttempts = 500'000'000;
constexpr int64_t kNodeZeroTimeout = 600'000'000'000;
constexpr int64_t kRemarkAfter = 1'000'000'000, kRemarkEvery = 60'000'000'000;
// How long node 0 may take to end the run after the second stop signal.
constexpr int64_t kForEnd = 15'000'000'000;
// How long after node 0's end a stop signal to all nodes may take to reach this one.
constexpr int64_t kForSameSignal = 500'000'000;
// How long the programs that run for node 0 may take to end after their connections.
constexpr int64_t kForCommands = 8'000'000'000;

// A process that runs a command of node 0.
struct ServedCommand {
  pid_t pid = -1;
  Descriptor connection;  // which carries the command's standard input and output
};

class ServedNode {
 public:
  ServedNode(const LaunchOptions& options, int slots, const std::string& secret)
      : options_(options),
        secret_(secret),
        master_address_(address_of("--master_addr", options.master_addr)),
        introduction_{
            {host_name(), {}, 0, random_hex()}, *options.node_rank, *options.nnodes, slots},
        pending_(relay_key(secret, introduction_.address.token)) {}
  ServedNode(const ServedNode&) = delete;
  ServedNode& operator=(const ServedNode&) = delete;
  // Ends the connections of the commands, so that they end. They clear this host of the run first.
  ~ServedNode() {
    for (const ServedCommand& command : commands_) {
      ::shutdown(command.connection.get(), SHUT_RDWR);
      ::kill(-command.pid, SIGCONT);  // a stopped one would not notice it
    }
    const int64_t end = monotonic_ns() + kForCommands;
    for (collect_commands(); !commands_.empty() && monotonic_ns() < end; collect_commands())
      ::poll(nullptr, 0, kServeTickMs);
  }

  int run(const RankBoard& requests, const StopSignals& signals) {
    start_connecting();
    while (true) {
      ::poll(nullptr, 0, kServeTickMs);
      const int first = requests.stop_request(), second = signals.second();
      if (!master_) {
        if (first != 0) return stopped_by(first);
        if (connect()) continue;
        wait_for_node_zero();
        continue;
      }
      serve_commands();
      collect_commands();
      if (const auto status = serve_node_zero(requests)) return *status;
      tell_trace(requests.trace_requests());
      tell_stop(second != 0 ? second : first, second != 0 ? 2 : first != 0 ? 1 : 0);
      if (told_stops_ == 2 && monotonic_ns() - told_ns_ > kForEnd) {
        write_stop_line(stopped_at_once(second, "though node 0 has not ended"));
        return 128 + second;
      }
    }
  }

 private:
  void start_connecting() {
    handshake_.reset();
    attempt_ns_ = monotonic_ns();
    connector_.emplace(std::vector<std::string>{master_address_}, meeting_port(options_));
  }

  bool connect() {
    if (!handshake_)
      if (auto socket = connector_->connected()) handshake_.emplace(std::move(*socket), secret_);
    const Handshake::State state = handshake_ ? handshake_->advance() : Handshake::State::going_on;
    if (state == Handshake::State::refused)
      fail_user(
          "node 0 refuses this node: the two have different secrets: give all nodes the same "
          "--secret_file or {}",
          kSecretVariable);
    if (state == Handshake::State::failed) handshake_.reset();
    if (state == Handshake::State::done) {
      master_ = handshake_->take();
      listen();
      master_->channel.send(introduction_);
      silence_ = Silence(monotonic_ns());
      log::info("node {} of {}: has met node 0 at {}:{}", *options_.node_rank, *options_.nnodes,
                options_.master_addr, meeting_port(options_));
      return true;
    }
    const int64_t patience = handshake_ ? kLongestGreetingTime : kBetweenAttempts;
    if (monotonic_ns() - attempt_ns_ > patience) start_connecting();
    return false;
  }

  void wait_for_node_zero() {
    const int64_t now = monotonic_ns();
    if (now - begin_ns_ > kNodeZeroTimeout)
      fail_run(
          "node 0 did not answer at {}:{} within {} s: start it with --node_rank 0 on that host",
          options_.master_addr, meeting_port(options_), kNodeZeroTimeout / 1'000'000'000);
    if (now < next_remark_ns_) return;
    next_remark_ns_ = now + kRemarkEvery;
    log::info("node {} of {}: waits for node 0, which does not answer at {}:{} yet",
              *options_.node_rank, *options_.nnodes, options_.master_addr, meeting_port(options_));
  }

  // Exchanges messages with node 0. Returns the exit status of the run once it has ended. Throws if node 0 refuses this
  // node or is lost.
  std::optional<int> serve_node_zero(const RankBoard& requests) {
    LineChannel& channel = master_->channel;
    const int64_t now = monotonic_ns();
    silence_.update(now);
    const bool open = channel.receive([this](const json& message) {
      silence_.heard();
      handle(message);
    });
    if (ended_) return ended(*ended_);
    if (const int signal = open ? 0 : same_signal(requests); signal != 0) return stopped_by(signal);
    if (!open)
      fail_run("node 0 was lost: {}",
               channel.fault().empty() ? "the connection to it ended" : channel.fault());
    // A node 0 that is suspended sends nothing, but its machine answers.
    if (silence_.ns() > most_silence_ns_ && !peer_answers(master_->socket.get()).value_or(false))
      fail_run("node 0 was lost: no word from it for {} s", most_silence_ns_ / 1'000'000'000);
    if (now - sent_ns_ >= kHeartbeat) {
      sent_ns_ = now;
      channel.send({{"say", "alive"}});
    }
    channel.flush();
    return std::nullopt;
  }

  // A stop signal that reaches all nodes ends node 0 at once if nothing runs yet. Returns that signal once it has reached
  // this node, too; 0 if none comes or node 0 has started something here, which it then loses.
  int same_signal(const RankBoard& requests) const {
    const int64_t end = monotonic_ns() + kForSameSignal;
    while (!has_started_ && requests.stop_request() == 0 && monotonic_ns() < end)
      ::poll(nullptr, 0, kServeTickMs);
    return has_started_ ? 0 : requests.stop_request();
  }

  // Says that nothing has run here, and returns the exit status.
  static int stopped_by(int signal) {
    write_stop_line(stopped_before_steps(signal));
    return 128 + signal;
  }

  // Says which nodes the run waits for, whenever these have changed.
  void note_missing(std::vector<int> ranks) {
    if (ranks == missing_) return;
    missing_ = std::move(ranks);
    if (!missing_.empty())
      log::info("node {} of {}: waits with node 0 for node{} {}", *options_.node_rank,
                *options_.nnodes, missing_.size() == 1 ? "" : "s", ranges_text(missing_));
  }

  // Tells node 0 how many stop signals this process has received: they mean the run.
  void tell_stop(int signal, int count) {
    if (count <= told_stops_) return;
    told_stops_ = count;
    told_ns_ = monotonic_ns();
    master_->channel.send({{"say", "stop"}, {"signal", signal}, {"count", count}});
  }

  // Tells node 0 that this process has received SIGUSR2.
  void tell_trace(int64_t requests) {
    if (requests <= told_traces_) return;
    told_traces_ = requests;
    master_->channel.send({{"say", "trace"}});
  }

  void collect_commands() {
    std::erase_if(commands_, [](const ServedCommand& command) {
      return ::waitpid(command.pid, nullptr, WNOHANG) != 0;
    });
  }

  // Listens for node 0's relays in the network in which it was met.
  void listen() {
    NodeAddress& own = introduction_.address;
    own.addresses = {own_address_of(master_->socket)};
    listener_ = TcpListener::at(0, own.addresses.front());
    if (!listener_)
      fail_run("cannot listen for node 0 at {}: {}", own.addresses.front(), std::strerror(errno));
    own.port = listener_->port();
  }

  // Runs the commands that node 0 asks for. A relay first proves that it is node 0's.
  void serve_commands() {
    pending_.serve(*listener_, monotonic_ns(), [this](auto& connection, const json&) {
      relays_.push_back(std::move(connection));
    });
    std::erase_if(relays_, [this](const auto& relay) {
      std::optional<std::string> command;
      const bool open = relay->channel.receive(
          [&command](const json& message) { message.at("command").get_to(command.emplace()); }, 1);
      if (command) start(*command, *relay);
      return command || !open;
    });
  }

  void start(const std::string& command, SocketChannel& relay) {
    const pid_t pid =
        start_relay_end(command, relay.channel.keys_for(kRelayCommand), relay.socket.get());
    has_started_ = true;
    commands_.push_back({pid, std::move(relay.socket)});
  }

  void handle(const json& message) {
    const auto what = message.at("do").get<std::string>();
    if (what == "refuse")
      fail_user("node 0 refuses this node: {}", printable(message.at("why").get<std::string>()));
    if (what == "alive" && message.contains("silence_s"))
      most_silence_ns_ = integer_member(message, "silence_s", 1, 1'000'000) * 1'000'000'000;
    if (what == "wait") note_missing(message.at("for").get<std::vector<int>>());
    if (what == "end") ended_ = static_cast<int>(integer_member(message, "status", 0, 255));
  }

  static int ended(int status) {
    if (status == 0)
      log::info("node 0 says that the run is done");
    else
      log::warn("the run ended with status {}; node 0 says why", status);
    return status;
  }

  const LaunchOptions& options_;
  std::string secret_;
  std::string master_address_;           // numeric
  std::optional<TcpListener> listener_;  // once node 0 was met
  NodeIntroduction introduction_;        // of this node
  std::optional<TcpConnector> connector_;
  std::optional<Handshake> handshake_;  // with who answered at node 0's address
  std::unique_ptr<SocketChannel> master_;
  PendingConnections pending_;
  std::vector<std::unique_ptr<SocketChannel>> relays_;  // whose command has not arrived
  std::optional<int> ended_;                            // the status of the run
  std::vector<ServedCommand> commands_;
  bool has_started_ = false;  // a command
  std::vector<int> missing_;  // the nodes that node 0 waits for
  Silence silence_{0};        // of node 0
  int64_t most_silence_ns_ =
      kLongestSilence;  // until node 0 has said what its configuration asks for
  int64_t begin_ns_ = monotonic_ns(), attempt_ns_ = 0, sent_ns_ = 0;
  int64_t next_remark_ns_ = begin_ns_ + kRemarkAfter;
  int told_stops_ = 0;
  int64_t told_ns_ = 0;
  int64_t told_traces_ = 0;
};

}  // namespace

int serve_node(const LaunchOptions& options, int slots, const std::string& secret) {
  const RankBoard board = RankBoard::create(1);
  const StopSignals signals(board, StopSignals::Note::none, StopSignals::Second::is_remembered);
  return ServedNode(options, slots, secret).run(board, signals);
}

}  // namespace dstrain
