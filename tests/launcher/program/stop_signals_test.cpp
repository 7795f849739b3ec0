// Stop signals of the program itself: who receives them, and what a closed terminal does.
#include "launcher/process/stop_signals.h"

#include <signal.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "launcher/connection/handshake.h"
#include "launcher/connection/tcp_socket.h"
#include "runtime/core/rank_board.h"
#include "tests/launcher/support/run_folder.h"
#include "tests/launcher/support/terminal.h"

namespace dstrain {
namespace {

namespace fs = std::filesystem;

constexpr int kClosedTerminal = 128 + SIGHUP;

// The signals of a line of /proc/PID/task/TID/status ("SigBlk:\t0000000000004203"), bit n-1 for signal n.
uint64_t signals_of(const fs::path& thread, const std::string& name) {
  std::ifstream status(thread / "status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(name)) return std::stoull(line.substr(name.size()), nullptr, 16);
  return 0;
}

uint64_t received_signals() {
  uint64_t bits = 0;
  for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGUSR2})
    bits |= uint64_t{1} << (number - 1);
  return bits;
}

bool trains(const RunFolder& folder) {
  return lines_of(folder.read("out/metrics.jsonl")) >= 3;
}

const Environment kRoot = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                           {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                           {"OMP_NUM_THREADS", "2"}};

TEST_CASE("no signal to a run interrupts a thread of a process that trains") {
  // Ranks that mpirun stops have as long as it says to finish a step and to write the weights; it reads nothing
  // that they print meanwhile, so they print little.
  const std::string starter = GENERATE(
      "", "mpirun --mca odls_base_sigkill_timeout 4 --oversubscribe --bind-to none -np 2 ");
  CAPTURE(starter);
  const RunFolder folder;
  RunningProgram program =
      folder.start(starter +
                       DSTRAIN_PROGRAM
                       " --config c.json --steps 100000000 --set steps_per_print=100000000 --set "
                       "dstrain.eval_interval=0 " +
                       folder.token(),
                   kRoot);
  REQUIRE(wait_until([&] { return trains(folder); }));
  int processes = 0;
  for (const pid_t pid : processes_with(folder.token())) {
    const fs::path process = fs::path("/proc") / std::to_string(pid);
    std::ifstream name(process / "comm");
    if (std::string comm; !(name >> comm) || comm != "dstrain") continue;
    ++processes;
    int receiving = 0, others = 0;
    for (const auto& thread : fs::directory_iterator(process / "task")) {
      // The kernel shows what a thread waits for as not blocked.
      const uint64_t blocked = signals_of(thread.path(), "SigBlk:") & received_signals();
      ++(blocked == 0 ? receiving : others);
      CHECK((blocked == 0 || blocked == received_signals()));
      CHECK((signals_of(thread.path(), "SigCgt:") & received_signals()) == 0);
    }
    CHECK(receiving == 1);
    CHECK(others >= 2);  // the main thread and the second one that computes
  }
  CHECK(processes == (starter.empty() ? 1 : 2));
  ::kill(program.pid(), SIGTERM);
  CHECK(program.wait() != 0);
  CHECK(fs::exists(folder.root / "out/model.safetensors"));
}

TEST_CASE("SIGHUP ends a run after its step, with weights and checkpoint") {
  ::signal(SIGHUP, SIG_DFL);  // a run of a test under nohup would ignore it
  const std::string ranks = GENERATE("1", "2");
  CAPTURE(ranks);
  const RunFolder folder;
  RunningProgram program =
      folder.train("--steps 100000000 --save_interval 100000000 --num_gpus " + ranks);
  REQUIRE(wait_until([&] { return trains(folder); }));
  ::kill(program.pid(), SIGHUP);
  ::kill(program.pid(), SIGHUP);  // a closing terminal may say it twice
  CHECK(program.wait() == kClosedTerminal);
  CHECK(fs::exists(folder.root / "out/model.safetensors"));
  CHECK_FALSE(fs::is_empty(folder.root / "out/checkpoints"));
  CHECK(folder.nothing_left());
}

TEST_CASE("nohup keeps a run going when SIGHUP comes") {
  const std::string ranks = GENERATE("1", "2");
  CAPTURE(ranks);
  const RunFolder folder;
  RunningProgram program = folder.start("nohup " DSTRAIN_PROGRAM " --config c.json " +
                                        folder.token() + " --steps 100000000 --num_gpus " + ranks);
  REQUIRE(wait_until([&] { return trains(folder); }));
  ::kill(program.pid(), SIGHUP);
  const int before = lines_of(folder.read("out/metrics.jsonl"));
  CHECK(wait_until([&] { return lines_of(folder.read("out/metrics.jsonl")) > before + 100; }));
  ::kill(program.pid(), SIGTERM);
  CHECK(program.wait() == 128 + SIGTERM);
}

TEST_CASE("a signal to all processes of a run at once lets it finish its step") {
  const RunFolder folder;
  RunningProgram program = folder.start(
      DSTRAIN_PROGRAM " --config c.json --num_gpus 2 --steps 100000000 " + folder.token(), kRoot);
  REQUIRE(wait_until([&] { return trains(folder); }));
  for (const pid_t pid : processes_with(folder.token())) ::kill(pid, SIGTERM);
  CHECK(program.wait() == 128 + SIGTERM);
  CHECK(fs::exists(folder.root / "out/model.safetensors"));
  CHECK(folder.nothing_left());
}

TEST_CASE(
    "SIGINT ends a run that has not begun, also one that a script has started in the background") {
  const auto port = TcpListener::at(0, "127.0.0.1")->port();
  const RunFolder folder;
  ::signal(SIGINT, SIG_IGN);  // as a shell without job control does for what it starts with `&`
  RunningProgram program =
      folder.start(DSTRAIN_PROGRAM
                   " --config c.json --no_ssh --nnodes 2 --node_rank 0 --master_addr 127.0.0.1 "
                   "--master_port " +
                   std::to_string(port) + " " + folder.token());
  ::signal(SIGINT, SIG_DFL);
  REQUIRE(wait_until([&] { return program.wrote("waits at port"); }));
  ::kill(program.pid(), SIGINT);
  CHECK(program.wait() == 128 + SIGINT);
  CHECK(program.wrote("stopped by signal 2 (Interrupt) before the first step"));
  CHECK_FALSE(program.wrote("stopping after this step"));
  CHECK(folder.nothing_left());
}

TEST_CASE(
    "a node takes the end of node 0 for what a stop signal to all nodes has done, if it gets that "
    "signal") {
  const int signal = GENERATE(0, SIGHUP, SIGTERM);
  CAPTURE(signal);
  ::signal(SIGHUP, SIG_DFL);  // a run of a test under nohup would ignore it
  const auto node_zero = TcpListener::at(0, "127.0.0.1");
  const RunFolder folder;
  RunningProgram program = folder.train(
      "--no_ssh --nnodes 2 --node_rank 1 --num_gpus 1 --master_addr 127.0.0.1 --master_port " +
      std::to_string(node_zero->port()));
  PendingConnections pending("");
  std::unique_ptr<SocketChannel> met;
  REQUIRE(wait_until([&] {
    pending.serve(*node_zero, monotonic_ns(),
                  [&](auto& connection, const nlohmann::json&) { met = std::move(connection); });
    return met != nullptr;
  }));
  REQUIRE(wait_until([&] { return program.wrote("has met node 0"); }));
  met.reset();
  if (signal != 0) ::kill(program.pid(), signal);
  CHECK(program.wait() == (signal == 0 ? 2 : 128 + signal));
  CHECK((program.text().find("node 0 was lost") != std::string::npos) == (signal == 0));
}

TEST_CASE("a run whose terminal is closed writes weights and checkpoint") {
  const std::string ranks = GENERATE("1", "2");
  CAPTURE(ranks);
  const RunFolder folder;
  TerminalProgram program(folder,
                          "--steps 100000000 --save_interval 100000000 --num_gpus " + ranks);
  REQUIRE(wait_until([&] { return program.read(), trains(folder); }));
  program.close_terminal();
  CHECK(program.wait() == kClosedTerminal);
  CHECK(fs::exists(folder.root / "out/model.safetensors"));
  CHECK_FALSE(fs::is_empty(folder.root / "out/checkpoints"));
  CHECK(folder.nothing_left());
}

}  // namespace
}  // namespace dstrain
