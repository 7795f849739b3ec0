#include "launcher/nodes/serve_node.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>

#include "launcher/connection/handshake.h"
#include "launcher/connection/message.h"
#include "launcher/connection/network.h"
#include "launcher/connection/tcp_socket.h"
#include "launcher/nodes/node_address.h"
#include "launcher/placement/machine.h"
#include "launcher/process/stop_signals.h"
#include "runtime/config/text.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

using nlohmann::json;

constexpr int kServeTickMs = 20;
constexpr int64_t kBetweenAttempts = 500'000'000;
constexpr int64_t kNodeZeroTimeout = 600'000'000'000;

// Starts a shell that runs `command` with the socket as standard input and output, in a process group of its own.
// Returns its process id.
pid_t run_command(const std::string& command, int socket) {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, socket, STDIN_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, socket, STDOUT_FILENO);
  ::posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);
  ::posix_spawnattr_init(&attributes);
  sigset_t none;
  ::sigemptyset(&none);
  sigset_t usual;
  ::sigemptyset(&usual);
  ::sigaddset(&usual, SIGPIPE);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  ::posix_spawnattr_setsigdefault(&attributes, &usual);
  ::posix_spawnattr_setpgroup(&attributes, 0);
  ::posix_spawnattr_setflags(
      &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  std::string shell = "sh", option = "-c", text = command;
  std::array<char*, 4> words{shell.data(), option.data(), text.data(), nullptr};
  pid_t pid = -1;
  const int error = ::posix_spawn(&pid, "/bin/sh", &actions, &attributes, words.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) fail_run("cannot start a shell: {}", std::strerror(error));
  return pid;
}

class ServedNode {
 public:
  ServedNode(const LaunchOptions& options, int slots)
      : options_(options), master_address_(address_of("--master_addr", options.master_addr)) {
    introduction_ = {{host_name(), {}, listener_.port(), random_token()},
                     *options.node_rank,
                     *options.nnodes,
                     slots};
    for (const InterfaceAddress& own : own_addresses())
      if (introduction_.address.addresses.size() < kMostAddresses)
        introduction_.address.addresses.push_back(own.address);
  }
  ServedNode(const ServedNode&) = delete;
  ServedNode& operator=(const ServedNode&) = delete;
  ~ServedNode() {
    for (const pid_t pid : commands_) ::kill(-pid, SIGTERM);
  }

  int run(const RankBoard& board) {
    start_connecting();
    while (board.stop_request() == 0) {
      ::poll(nullptr, 0, kServeTickMs);
      if (!master_) {
        if (connect()) continue;
        if (monotonic_ns() - begin_ns_ > kNodeZeroTimeout)
          fail_run(
              "node 0 did not answer at {}:{} within {} s: start it with --node_rank 0 on that "
              "host",
              options_.master_addr, meeting_port(options_), kNodeZeroTimeout / 1'000'000'000);
        continue;
      }
      serve_commands();
      std::erase_if(commands_, [](pid_t pid) { return ::waitpid(pid, nullptr, WNOHANG) != 0; });
      const bool open = master_->channel.receive([this](const json& message) { handle(message); });
      if (ended_) return ended(*ended_);
      if (!open)
        fail_run("node 0 was lost: {}", master_->channel.fault().empty()
                                            ? "the connection to it ended"
                                            : master_->channel.fault());
    }
    return 128 + board.stop_request();
  }

 private:
  void start_connecting() {
    attempt_ns_ = monotonic_ns();
    connector_.emplace(std::vector<std::string>{master_address_}, meeting_port(options_));
  }

  bool connect() {
    if (auto socket = connector_->connected()) {
      master_ = std::make_unique<SocketChannel>(std::move(*socket));
      master_->channel.send(introduction_);
      log::info("node {} of {}: has met node 0 at {}:{}", *options_.node_rank, *options_.nnodes,
                options_.master_addr, meeting_port(options_));
      return true;
    }
    if (monotonic_ns() - attempt_ns_ > kBetweenAttempts) start_connecting();
    return false;
  }

  // Runs the commands that node 0 asks for. A relay first shows that it is node 0's, in a short message.
  void serve_commands() {
    pending_.serve(listener_, monotonic_ns(), [this](auto& connection, const json& message) {
      if (message.at("token").template get<std::string>() == introduction_.address.token)
        relays_.push_back(std::move(connection));
    });
    std::erase_if(relays_, [this](const auto& relay) {
      std::optional<std::string> command;
      const bool open = relay->channel.receive(
          [&command](const json& message) { message.at("command").get_to(command.emplace()); }, 1);
      if (command) start(*command, relay->socket.get());
      return command || !open;
    });
  }

  void start(const std::string& command, int socket) {
    ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) & ~O_NONBLOCK);
    constexpr char answer = '!';
    if (::write(socket, &answer, 1) == 1) commands_.push_back(run_command(command, socket));
  }

  void handle(const json& message) {
    const auto what = message.at("do").get<std::string>();
    if (what == "refuse")
      fail_user("node 0 refuses this node: {}", printable(message.at("why").get<std::string>()));
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
  std::string master_address_;  // numeric
  TcpListener listener_;
  NodeIntroduction introduction_;  // of this node
  std::optional<TcpConnector> connector_;
  std::unique_ptr<SocketChannel> master_;
  PendingConnections pending_;
  std::vector<std::unique_ptr<SocketChannel>> relays_;  // whose command has not arrived
  std::vector<pid_t> commands_;
  std::optional<int> ended_;  // the status of the run
  int64_t begin_ns_ = monotonic_ns(), attempt_ns_ = 0;
};

}  // namespace

int serve_node(const LaunchOptions& options, int slots) {
  const RankBoard board = RankBoard::create(1);
  const StopSignals signals(board, StopSignals::Note::none, StopSignals::Second::ends_process);
  return ServedNode(options, slots).run(board);
}

}  // namespace dstrain
