#include "runtime/comm/mpi/mpi_session.h"

#include <array>

#include "runtime/comm/mpi/message_sleep.h"
#include "runtime/comm/mpi/mpi_settings.h"
#include "runtime/comm/mpi/shared_files.h"
#include "runtime/comm/mpi/slurm_fence.h"
#include "runtime/core/error.h"

namespace dstrain {

void check_mpi(int code, const std::string& what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail_run("MPI failed in {}: {}", what, text.data());
}

void require_threads(int provided) {
  // Any thread may abort, and then sends messages.
  if (provided >= MPI_THREAD_MULTIPLE) return;
  const char* name = provided == MPI_THREAD_SERIALIZED ? "MPI_THREAD_SERIALIZED"
                     : provided == MPI_THREAD_FUNNELED ? "MPI_THREAD_FUNNELED"
                                                       : "MPI_THREAD_SINGLE";
  fail_user(
      "this MPI library gives {} where dstrain needs MPI_THREAD_MULTIPLE: use one built with "
      "threads, or another transport of it ('--mca pml ob1' with Open MPI)",
      name);
}

MpiSession::MpiSession() {
  sleep_precisely();
  int initialised = 0;
  MPI_Initialized(&initialised);
  if (!initialised) {
    prepare_mpi_settings();
    int provided = 0;
    check_mpi(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided), "MPI_Init");
    meet_in_slurm();
    take_room_of_shared_files();
    initialised_here_ = true;
  }
  int threads = MPI_THREAD_SINGLE;
  MPI_Query_thread(&threads);
  require_threads(threads);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Comm_idup(MPI_COMM_WORLD, &comm_, &request), "MPI_Comm_idup");
  wait_for(request, "MPI_Comm_idup");
  read_comm();
  int* bound = nullptr;
  int known = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, static_cast<void*>(&bound), &known);
  if (known && bound != nullptr) tag_bound_ = *bound;
}

MpiSession::MpiSession(MPI_Comm comm, int tag_bound) : comm_(comm), tag_bound_(tag_bound) {
  read_comm();
}

void MpiSession::read_comm() {
  MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
  MPI_Comm_rank(comm_, &rank_);
  MPI_Comm_size(comm_, &size_);
}

std::unique_ptr<MpiSession> MpiSession::split(int part) {
  // MPI_Comm_split keeps a core busy until all ranks are there: they come together first.
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Ibarrier(comm_, &request), "MPI_Ibarrier");
  wait_for(request, "MPI_Ibarrier");
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(comm_, part == kNoPart ? MPI_UNDEFINED : part, rank_, &comm),
            "MPI_Comm_split");
  if (comm == MPI_COMM_NULL) return nullptr;
  return std::unique_ptr<MpiSession>(new MpiSession(comm, tag_bound_));
}

void MpiSession::gather_bytes(const void* mine, void* all, size_t bytes) {
  const int n = static_cast<int>(bytes);
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Iallgather(mine, n, MPI_BYTE, all, n, MPI_BYTE, comm_, &request), "MPI_Iallgather");
  wait_for(request, "MPI_Iallgather");
}

void MpiSession::leave() {
  MPI_Comm_free(&comm_);
  if (initialised_here_) check_mpi(MPI_Finalize(), "MPI_Finalize");
}

}  // namespace dstrain
