#include "launcher/rank_link.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "launcher/rank_output.h"
#include "runtime/core/error.h"
#include "runtime/core/log.h"

namespace dstrain {
namespace {

constexpr const char* kBoard = "DSTRAIN_BOARD";    // RankBoard::address()
constexpr const char* kOutput = "DSTRAIN_OUTPUT";  // RankOutput::address()

}  // namespace

Environment link_environment(const RankBoard& board, const std::string& output) {
  return {{kBoard, board.address()}, {kOutput, output}};
}

bool launched_as_rank() {
  return std::getenv(kBoard) != nullptr;
}

RankBoard join_launcher(int rank) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // SIGTTOU: a terminal with `tostop` would stop a rank that writes, as it is in the background.
  for (int number : {SIGINT, SIGTERM, SIGUSR1, SIGTTOU}) std::signal(number, SIG_IGN);
  log::set_rank(rank);

  const char* address = std::getenv(kBoard);
  const char* output = std::getenv(kOutput);
  check(address != nullptr && output != nullptr, "joining a launcher that left no address");
  RankBoard board = RankBoard::attach(address);
  open_rank_output(output, rank);

  RankSlot& slot = board.slot(rank);
  slot.pid.store(::getpid());
  slot.set_state(RankState::starting);
  return board;
}

}  // namespace dstrain
