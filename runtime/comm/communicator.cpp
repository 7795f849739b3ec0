#include "runtime/comm/communicator.h"

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "runtime/comm/mpi_comm.h"
#include "runtime/comm/mpi_session.h"
#include "runtime/comm/self_comm.h"
#include "runtime/comm/shared_comm.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

int from_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text && *text ? std::atoi(text) : otherwise;
}

bool messages_forced() {
  const char* text = std::getenv("DSTRAIN_COMM");
  const std::string_view choice = text ? text : "";
  if (choice != "" && choice != "auto" && choice != "mpi")
    fail_user("the environment variable DSTRAIN_COMM is '{}', expected 'auto' or 'mpi'", choice);
  return choice == "mpi";
}

}  // namespace

int world_size_from_environment() {
  return from_environment("OMPI_COMM_WORLD_SIZE", 1);
}
int world_rank_from_environment() {
  return from_environment("OMPI_COMM_WORLD_RANK", 0);
}
int ranks_on_this_host_from_environment() {
  return from_environment("OMPI_COMM_WORLD_LOCAL_SIZE", 1);
}
int rank_on_this_host_from_environment() {
  return from_environment("OMPI_COMM_WORLD_LOCAL_RANK", 0);
}

std::unique_ptr<Communicator> make_communicator(const CommOptions& options) {
  if (world_size_from_environment() <= 1) return std::make_unique<SelfComm>();
  const bool forced = messages_forced();
  auto mpi = std::make_unique<MpiSession>();
  if (!forced && mpi->one_host() && mpi->size() <= kMaxRanks) {
    std::string why;
    if (auto group = SharedGroup::open(*mpi, why))
      return std::make_unique<SharedComm>(std::move(mpi), std::move(group), options);
    if (mpi->rank() == 0) {
      const std::string text =
          fmt::format("the ranks cannot share memory, messages are used instead (slower){}{}",
                      why.empty() ? "" : ": ", why);
      if (options.warn)
        options.warn(text);
      else
        std::fprintf(stderr, "dstrain: warning: %s\n", text.c_str());
    }
  }
  return std::make_unique<MpiComm>(std::move(mpi), options);
}

}  // namespace dstrain
