// A program for mpirun that fails in the way its argument names; every rank prints its error.
// failures_test.cpp runs it.
#include <linux/capability.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/mpi/mpi_session.h"
#include "runtime/comm/world.h"
#include "runtime/comm/world_environment.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

// Longer than the tests may take: a rank that waits for its deadline fails them.
constexpr double kDeadline = 3600;

void pause_for(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

void add_four(Communicator& comm, std::vector<float>& data) {
  comm.all_reduce({data.data(), {static_cast<int64_t>(data.size())}, DType::f32}).wait();
}

// The same in a part of the ranks 1 and 2, while rank 0 waits in the world.
void fail_in_part_by(const std::string& how, Communicator& world) {
  const bool culprit = world.rank() == world.size() - 1;
  std::vector<int> ranks{0};
  if (world.rank() > 0) ranks = {1, 2};
  const auto part = world.split(ranks);
  std::vector<float> data(4, 1.0f);
  const Tensor tensor{data.data(), {4}, DType::f32};
  if (world.rank() == 0) {
    if (how == "part_deadline") pause_for(2);
    return world.barrier();
  }
  add_four(*part, data);
  if (how == "part_killed") {
    if (culprit) ::raise(SIGKILL);
    add_four(*part, data);
  } else if (how == "part_message") {
    if (culprit) ::raise(SIGKILL);
    part->recv(tensor).wait();
  } else if (how == "part_kind") {
    if (culprit) part->send(tensor).wait();
    add_four(*part, data);
  } else if (how == "part_abort") {
    if (culprit) {
      pause_for(0.3);
      part->abort("no space left on the disk");
    }
    add_four(*part, data);
  } else if (how == "part_deadline") {
    part->set_deadline(0.4);
    if (culprit) pause_for(4);
    add_four(*part, data);
  }
}

// The last rank causes the failure.
void fail_by(const std::string& how, Communicator& comm) {
  const bool culprit = comm.rank() == comm.size() - 1;
  std::vector<float> data(4, 1.0f);
  for (int i = 0; i < 3; ++i) add_four(comm, data);
  const auto exchange = [&] {
    std::vector<float> result(6);
    data.resize(6);
    comm.all_to_all({data.data(), {6}, DType::f32}, {result.data(), {6}, DType::f32}).wait();
  };
  if (how == "exchange_killed") {
    if (culprit) ::raise(SIGKILL);
    exchange();
  } else if (how == "exchange_kind") {
    if (culprit) add_four(comm, data);
    exchange();
  } else if (how == "killed") {
    if (culprit) ::raise(SIGKILL);
    add_four(comm, data);
  } else if (how == "size") {
    if (culprit) data.resize(5);
    add_four(comm, data);
  } else if (how == "large") {  // the first rank instead
    if (comm.rank() == 0) data.resize(1 << 20);
    add_four(comm, data);
  } else if (how == "kind") {
    if (culprit)
      comm.barrier();
    else
      add_four(comm, data);
  } else if (how == "abort") {
    std::thread other([&] {
      pause_for(0.3);
      if (culprit) comm.abort("no space left on the disk");
    });
    try {
      if (!culprit) add_four(comm, data);
    } catch (...) {
      other.join();
      throw;
    }
    other.join();
    add_four(comm, data);
  } else if (how == "deadline") {
    comm.set_deadline(0.4);
    if (culprit) pause_for(4);
    add_four(comm, data);
  } else if (how == "exception") {
    if (culprit) throw std::runtime_error("its own trouble");
    add_four(comm, data);
  }
}

// Other processes cannot open this one's files, nor it theirs, as in a container that forbids it.
void forbid_opening_files() {
  ::prctl(PR_SET_DUMPABLE, 0);
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  ::syscall(SYS_capget, &header, data.data());
  data[0].effective &= ~(1u << CAP_SYS_PTRACE);
  ::syscall(SYS_capset, &header, data.data());
}

void run_refused(int& rank) {
  CommOptions options;
  options.deadline_seconds = kDeadline;
  int warnings = 0;
  std::string warning;
  options.warn = [&](const std::string& text) {
    ++warnings;
    warning = text;
  };
  forbid_opening_files();
  auto comm = make_communicator(options);
  rank = comm->rank();
  std::vector<float> data(4, 1.0f);
  add_four(*comm, data);
  std::printf("rank %d: sum %g, %d warnings %s\n", rank, static_cast<double>(data[0]), warnings,
              warning.c_str());
  comm->finish();
}

int run(const std::string& how) {
  ::signal(SIGTERM, SIG_IGN);  // mpirun's, after another rank died: this one must still print
  int rank = world_rank_from_environment();
  try {
    if (how == "refused") {
      int provided = 0;
      MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
      run_refused(rank);
      MPI_Finalize();
      return 0;
    }
    CommOptions options;
    options.deadline_seconds = kDeadline;
    auto comm = make_communicator(options);
    if (how.starts_with("part_"))
      fail_in_part_by(how, *comm);
    else
      fail_by(how, *comm);
    std::printf("rank %d: nothing went wrong\n", rank);
    comm->finish();
    return 0;
  } catch (const std::exception& error) {
    std::printf("rank %d: %s\n", rank, error.what());
  }
  std::fflush(stdout);
  return 2;
}

}  // namespace
}  // namespace dstrain

int main(int argc, char** argv) {
  return argc == 2 ? dstrain::run(argv[1]) : 1;
}
