// Times collectives over several machines, for a script that knows the links between them.
//
//   mpirun ... link_bench [megabytes, default 64] [calls, default 3]
//
// Rank 0 prints a line for each collective and dtype: the name, the dtype, the bytes of the whole tensor, and the
// seconds of a call on the slowest rank (the median of the calls, after one that opens connections).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/world.h"
#include "runtime/comm/world_environment.h"
#include "runtime/core/cpu.h"
#include "runtime/core/threads/core_share.h"

namespace dstrain {
namespace {

double seconds_of(Communicator& comm, const std::function<Work()>& start) {
  using Clock = std::chrono::steady_clock;
  comm.barrier();
  const auto begin = Clock::now();
  start().wait();
  const double mine = std::chrono::duration<double>(Clock::now() - begin).count();
  std::vector<double> all(static_cast<size_t>(comm.size()));
  comm.gather_values({&mine, 1}, all);
  return *std::max_element(all.begin(), all.end());
}

void measure(Communicator& comm, const std::string& name, const Tensor& whole, int calls,
             const std::function<Work()>& start) {
  std::vector<double> times;
  seconds_of(comm, start);
  for (int i = 0; i < calls; ++i) times.push_back(seconds_of(comm, start));
  std::sort(times.begin(), times.end());
  if (comm.rank() != 0) return;
  std::printf("%s %s %lld %.6f\n", name.c_str(), std::string(name_of(whole.dtype)).c_str(),
              static_cast<long long>(whole.bytes()), times[times.size() / 2]);
  std::fflush(stdout);
}

int run(int argc, char** argv) {
  const int64_t bytes = (argc > 1 ? std::atoll(argv[1]) : 64) << 20;
  const int calls = argc > 2 ? std::atoi(argv[2]) : 3;
  CommOptions options;
  options.threads =
      take_core_share(rank_on_this_host_from_environment(), ranks_on_this_host_from_environment());
  auto comm = make_communicator(options);
  const Memory memory = comm->allocate(bytes, "the benchmark");
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const int64_t n = bytes / size_of(dtype) / comm->size();
    const Tensor whole{memory.data(), {n * comm->size()}, dtype};
    const Tensor slice{memory.data() + comm->rank() * n * size_of(dtype), {n}, dtype};
    measure(*comm, "all_reduce", whole, calls, [&] { return comm->all_reduce(whole); });
    measure(*comm, "reduce_scatter", whole, calls,
            [&] { return comm->reduce_scatter(whole, slice); });
    measure(*comm, "all_gather", whole, calls, [&] { return comm->all_gather(slice, whole); });
  }
  comm->finish();
  return 0;
}

}  // namespace
}  // namespace dstrain

int main(int argc, char** argv) {
  return dstrain::run(argc, argv);
}
