#include "launcher/supervise/watchers/watch_task.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>

#include "launcher/cli/command_names.h"
#include "launcher/connection/line_channel.h"
#include "launcher/process/environment.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

constexpr const char* kTask = "DSTRAIN_WATCH";
constexpr int kListener = 3;  // the listener's descriptor in the watcher
constexpr int kLongestStartMs = 30'000;

using nlohmann::json;

std::string text_of(const WatchTask& task) {
  json names = json::array();
  for (const std::string& name : task.names) names.push_back(to_json_text(name));
  return json{{"host", task.host},
              {"names", names},
              {"ranks", task.ranks},
              {"board", task.board},
              {"timeout_s", task.timeout_s},
              {"silence_s", task.silence_s},
              {"listener", task.listener >= 0 ? kListener : -1},
              {"addresses", task.addresses},
              {"port", task.port},
              {"key", task.key}}
      .dump();
}

// What posix_spawn does in the new process: standard input is empty, and standard output is `ready`, which the watcher
// closes once it watches and has met the others. So of mpirun's pipes it keeps only the one for errors open.
class SpawnActions {
 public:
  SpawnActions(int listener, int ready) {
    ::posix_spawn_file_actions_init(&actions_);
    ::posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions_, ready, STDOUT_FILENO);
    if (listener >= 0) ::posix_spawn_file_actions_adddup2(&actions_, listener, kListener);
    ::posix_spawn_file_actions_addclosefrom_np(&actions_,
                                               listener >= 0 ? kListener + 1 : kListener);
    ::posix_spawnattr_init(&attributes_);
    sigset_t none;
    ::sigemptyset(&none);
    ::posix_spawnattr_setsigmask(&attributes_, &none);
    ::posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK);
  }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;
  ~SpawnActions() {
    ::posix_spawn_file_actions_destroy(&actions_);
    ::posix_spawnattr_destroy(&attributes_);
  }

  int spawn(const char* program, std::vector<char*> words, std::vector<char*> environment) {
    pid_t pid = -1;
    return ::posix_spawn(&pid, program, &actions_, &attributes_, words.data(), environment.data());
  }

 private:
  posix_spawn_file_actions_t actions_{};
  posix_spawnattr_t attributes_{};
};

}  // namespace

void start_watcher(const WatchTask& task) {
  std::vector<std::string> words = {"dstrain", kHostWatchCommand};
  std::vector<std::string> environment = merged_environment({{kTask, text_of(task)}});
  Pipe ready;
  const int error = SpawnActions(task.listener, ready.write.get())
                        .spawn("/proc/self/exe", exec_pointers(words), exec_pointers(environment));
  if (error != 0) fail_run("cannot start the watcher of this host: {}", std::strerror(error));
  ready.write = Descriptor();
  pollfd end{ready.read.get(), POLLIN, 0};
  ::poll(&end, 1, kLongestStartMs);
}

WatchTask task_of_this_watcher() {
  const char* text = std::getenv(kTask);
  if (text == nullptr)
    fail_user(
        "host_watch is a part of dstrain that it starts itself, beside ranks of mpirun or srun");
  try {
    const json m = json::parse(text);
    WatchTask task;
    m.at("host").get_to(task.host);
    for (const json& name : m.at("names"))
      task.names.push_back(from_json_text(name.get<std::string>()));
    m.at("ranks").get_to(task.ranks);
    m.at("board").get_to(task.board);
    m.at("timeout_s").get_to(task.timeout_s);
    m.at("silence_s").get_to(task.silence_s);
    m.at("listener").get_to(task.listener);
    m.at("addresses").get_to(task.addresses);
    m.at("port").get_to(task.port);
    m.at("key").get_to(task.key);
    if (task.host < 0 || static_cast<size_t>(task.host) >= task.ranks.size() ||
        task.names.size() != task.ranks.size())
      fail_user("{} names no host of its own", kTask);
    return task;
  } catch (const json::exception& e) {
    fail_user("{} is not what dstrain writes: {}", kTask, e.what());
  }
}

}  // namespace dstrain
