#include "launcher/ranks/rank_link.h"

#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "launcher/output/rank_output.h"
#include "launcher/ranks/run_directory.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/world_environment.h"
#include "runtime/core/error.h"
#include "runtime/core/log/log.h"

namespace dstrain {
namespace {

constexpr const char* kBoard = "DSTRAIN_BOARD";    // RankBoard::address()
constexpr const char* kOutput = "DSTRAIN_OUTPUT";  // RankOutput::address()

constexpr int kAddedNiceness = 5;  // of ranks that an agent watches, to that of the run

bool is_numbered_rank() {
  return std::getenv(kWorldRankVariable) != nullptr ||
         std::getenv("OMPI_COMM_WORLD_RANK") != nullptr;
}

// Returns the addresses of the launching process, or of the agent on this host.
RunAddresses addresses_here() {
  const char* run = std::getenv(kRunVariable);
  const char* board = std::getenv(kBoard);
  const char* output = std::getenv(kOutput);
  // Whoever starts a rank numbers it.
  if (!is_numbered_rank() || (run == nullptr && (board == nullptr || output == nullptr)))
    fail_user(
        "the variable {} is set, by which dstrain knows the ranks that it has started itself, and "
        "this process is none: unset it",
        run != nullptr ? kRunVariable : kBoard);
  if (run != nullptr) return read_addresses(run);
  return {board, output};
}

}  // namespace

Environment link_environment(const RankBoard& board, const std::string& output) {
  return {{kBoard, board.address()}, {kOutput, output}};
}

bool launched_as_rank() {
  return std::getenv(kBoard) != nullptr || std::getenv(kRunVariable) != nullptr;
}

RankBoard join_launcher(int rank) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // SIGTTOU: a terminal with `tostop` would stop a rank that writes, because it runs in the background.
  // SIGPIPE: a lost connection to another rank is an error to report, not the end of this rank.
  for (int number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGHUP, SIGTTOU, SIGPIPE})
    std::signal(number, SIG_IGN);
  log::set_rank(rank);
  log::set_time_stamps(false);  // the launching process adds them

  const RunAddresses addresses = addresses_here();
  RankBoard board = RankBoard::attach(addresses.board);
  open_rank_output(addresses.output, rank);

  // The agent of this host must get a core while ranks, maybe of several runs, keep all of them busy.
  if (std::getenv(kRunVariable) != nullptr)
    ::setpriority(PRIO_PROCESS, 0, ::getpriority(PRIO_PROCESS, 0) + kAddedNiceness);

  RankSlot& slot = board.slot(rank);
  slot.pid.store(::getpid());
  slot.set_state(RankState::starting);
  return board;
}

}  // namespace dstrain
