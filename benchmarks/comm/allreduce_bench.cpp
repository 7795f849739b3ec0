// Compares our all-reduce with MPI_Allreduce and with a loop that moves the same bytes without adding.
//
//   mpirun --bind-to none -np 2 allreduce_bench [largest megabytes, default 256] [rounds, default 7]
//
// Every round times the three one after the other, because a machine's speed drifts. Prints the medians of the
// rounds' ratios. MPI has no bf16; its column then reduces as many bytes of fp32.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/mpi/mpi_session.h"
#include "runtime/comm/world.h"
#include "runtime/comm/world_environment.h"
#include "runtime/core/cpu.h"
#include "runtime/core/threads/core_share.h"

namespace dstrain {
namespace {

using Clock = std::chrono::steady_clock;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Returns the seconds per call on the slowest rank.
template <class F>
double seconds_of(Communicator& comm, int calls, F&& f) {
  comm.barrier();
  const auto start = Clock::now();
  for (int i = 0; i < calls; ++i) f();
  const double mine = std::chrono::duration<double>(Clock::now() - start).count() / calls;
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, all);
  return *std::max_element(all.begin(), all.end());
}

// Reads and writes each byte once, as an in-place all-reduce over any number of ranks must.
void touch(std::byte* data, int64_t bytes) {
  auto* words = reinterpret_cast<uint64_t*>(data);
  for (int64_t i = 0; i < bytes / 8; ++i) words[i] ^= 1;
}

struct Sample {
  double ours, mpi, bound;
};

void measure(Communicator& comm, DType dtype, int64_t bytes, int rounds, std::byte* ours,
             std::byte* theirs) {
  const Tensor tensor{ours, {bytes / size_of(dtype)}, dtype};
  const int calls = static_cast<int>(std::max<int64_t>(1, (int64_t{4} << 20) / bytes));
  std::vector<double> mpi_ratio, bound_ratio, time;
  for (int round = -1; round < rounds; ++round) {
    // The values are zeros, so that sums stay finite; the traffic does not depend on the values.
    std::fill_n(ours, bytes, std::byte{0});
    std::fill_n(theirs, bytes, std::byte{0});
    const Sample s{seconds_of(comm, calls, [&] { comm.all_reduce(tensor).wait(); }),
                   seconds_of(comm, calls,
                              [&] {
                                MPI_Allreduce(MPI_IN_PLACE, theirs, static_cast<int>(bytes / 4),
                                              MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
                              }),
                   seconds_of(comm, calls, [&] { touch(ours, bytes); })};
    if (round < 0) continue;  // warm-up: the first round causes page faults
    time.push_back(s.ours);
    mpi_ratio.push_back(s.mpi / s.ours);
    bound_ratio.push_back(s.bound / s.ours);
  }
  if (comm.rank() != 0) return;
  std::printf("%-5s %10lld %12.1f %10.2f %14.2f %14.2f\n", std::string(name_of(dtype)).c_str(),
              static_cast<long long>(bytes >> 10), median(time) * 1e6,
              static_cast<double>(bytes) / median(time) * 1e-9, median(mpi_ratio),
              median(bound_ratio));
  std::fflush(stdout);
}

void measure_small(Communicator& comm) {
  const double value = 1;
  std::vector<double> all(static_cast<size_t>(comm.size()));
  const auto gather = [&] { comm.gather_values({&value, 1}, all); };
  seconds_of(comm, 100, gather);
  const double seconds = seconds_of(comm, 1000, gather);
  if (comm.rank() == 0) std::printf("gather_values: %.2f us\n", seconds * 1e6);
}

int run(int argc, char** argv) {
  const int64_t largest = (argc > 1 ? std::atoll(argv[1]) : 256) << 20;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 7;
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  CommOptions options;
  options.threads =
      take_core_share(rank_on_this_host_from_environment(), ranks_on_this_host_from_environment());
  {
    auto comm = make_communicator(options);
    const Memory ours = comm->allocate(largest, "the benchmark");
    const Memory theirs = Memory::anonymous(largest, "the benchmark");
    measure_small(*comm);
    if (comm->rank() == 0)
      std::printf(
          "%d ranks\ndtype        KiB      ours us       GB/s  MPI / ours     bound / ours\n",
          comm->size());
    for (DType dtype : {DType::f32, DType::bf16})
      for (int64_t bytes = int64_t{64} << 10; bytes <= largest; bytes *= 2)
        measure(*comm, dtype, bytes, rounds, ours.data(), theirs.data());
    if (comm->size() > 1) comm->finish();
  }
  MPI_Finalize();
  return 0;
}

}  // namespace
}  // namespace dstrain

int main(int argc, char** argv) {
  return dstrain::run(argc, argv);
}
