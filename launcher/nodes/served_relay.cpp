#include "launcher/nodes/served_relay.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "launcher/cli/command_names.h"
#include "launcher/connection/message.h"
#include "launcher/nodes/node_address.h"
#include "launcher/nodes/relay_end.h"
#include "launcher/process/environment.h"
#include "launcher/process/failure.h"
#include "launcher/process/memory_file.h"
#include "launcher/process/program_path.h"
#include "launcher/process/stop_signals.h"
#include "runtime/core/error.h"
#include "runtime/core/files/system_reason.h"

namespace dstrain {
namespace {

using nlohmann::json;

constexpr int kConnection = 3;  // the connection's descriptor in the process
constexpr int kEndTickMs = 20;

// What posix_spawn does in a new process: which descriptors it has as its first ones, and its signals.
class NewProcess {
 public:
  NewProcess() {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none;
    ::sigemptyset(&none);
    sigset_t usual = signals_to_runs();
    ::sigaddset(&usual, SIGPIPE);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setsigdefault(&attributes_, &usual);
    flags_ = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF;
  }
  NewProcess(const NewProcess&) = delete;
  NewProcess& operator=(const NewProcess&) = delete;
  ~NewProcess() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }

  void give(int descriptor, int as) {
    ::posix_spawn_file_actions_adddup2(&actions_, descriptor, as);
  }
  void close_from(int first) { ::posix_spawn_file_actions_addclosefrom_np(&actions_, first); }
  void lead_a_group() {
    ::posix_spawnattr_setpgroup(&attributes_, 0);
    flags_ |= POSIX_SPAWN_SETPGROUP;
  }

  pid_t start(const std::string& path, std::vector<std::string> words,
              std::vector<std::string> environment) {
    ::posix_spawnattr_setflags(&attributes_, static_cast<short>(flags_));
    pid_t pid = -1;
    const int error = ::posix_spawn(&pid, path.c_str(), &actions_, &attributes_,
                                    exec_pointers(words).data(), exec_pointers(environment).data());
    if (error != 0) fail_run("cannot start {}: {}", path, system_reason(error));
    return pid;
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
  int flags_ = 0;
};

struct Task {
  std::string command;
  DirectionKeys keys;
};

Task task_on_standard_input() {
  std::string text;
  std::array<char, 4096> buffer;
  for (ssize_t n = 0; (n = ::read(STDIN_FILENO, buffer.data(), buffer.size())) > 0;)
    text.append(buffer.data(), static_cast<size_t>(n));
  Task task;
  const std::string fault = message_fault([&] {
    const json message = json::parse(text);
    message.at("command").get_to(task.command);
    message.at("send").get_to(task.keys.send);
    message.at("receive").get_to(task.keys.receive);
  });
  if (!fault.empty() || ::fcntl(kConnection, F_GETFD) < 0)
    fail_user("{} is a part of dstrain that it starts itself, for hosts without ssh",
              kRelayEndCommand);
  return task;
}

// Starts the shell with the pipes as its standard input and output.
pid_t run_shell(const std::string& command, const Pipe& input, const Pipe& output) {
  NewProcess shell;
  shell.give(input.read.get(), STDIN_FILENO);
  shell.give(output.write.get(), STDOUT_FILENO);
  shell.close_from(STDERR_FILENO + 1);
  return shell.start("/bin/sh", {"sh", "-c", command}, merged_environment({}));
}

}  // namespace

pid_t start_relay_end(const std::string& command, const DirectionKeys& keys, int connection) {
  const Descriptor task = memory_file(
      "dstrain command",
      json{{"command", command}, {"send", keys.send}, {"receive", keys.receive}}.dump());
  const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC));
  const std::vector<std::string> words = own_command({kRelayEndCommand});
  NewProcess process;
  process.give(task.get(), STDIN_FILENO);
  process.give(nowhere.get(), STDOUT_FILENO);
  process.give(connection, kConnection);
  process.close_from(kConnection + 1);
  process.lead_a_group();
  return process.start(words.front(), words, environment_for_node_zero());
}

int run_relay_end() {
  ignore_stop_signals();  // one to all processes of a run must not cut the run's connections
  std::signal(SIGPIPE, SIG_IGN);
  Task task = task_on_standard_input();
  pid_t shell = -1;
  std::string fault;
  {
    Pipe input, output;
    ::fcntl(kConnection, F_SETFD, FD_CLOEXEC);
    shell = run_shell(task.command, input, output);
    output.write = Descriptor();
    input.read = Descriptor();
    RelayEnd end(RelayEnd::Role::runs, Descriptor(kConnection), std::move(task.keys),
                 output.read.get(), std::move(input.write));
    while (!end.lost()) {
      // A program may go on after it has closed its output.
      if (end.sent_all() && shell > 0 && ::waitpid(shell, nullptr, WNOHANG) != 0) shell = -1;
      if (shell < 0) break;
      end.step(end.sent_all() ? kEndTickMs : -1);
    }
    fault = end.fault();
  }
  // Without their connection the programs end: agents by themselves, which clear the host first, and the daemons of
  // Open MPI by the signal. One that went on starting would make its directory again once the agent has removed it.
  if (shell > 0) {
    ::kill(0, SIGHUP);
    ::waitpid(shell, nullptr, 0);
  }
  if (fault.empty()) return 0;
  fail_run("the connection over which node 0 runs a command here cannot be trusted: {}", fault);
}

}  // namespace dstrain
