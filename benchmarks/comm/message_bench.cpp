// Compares a message between two ranks of a machine with a copy of the same bytes in one process.
//
//   mpirun --bind-to none -np 2 message_bench [megabytes, default 16] [rounds, default 15]
//
// Rank 0 sends from registered memory; rank 1 receives, and then copies the same bytes itself, because a machine's
// speed drifts. Prints the median of the rounds' ratios, copy / message, with the lowest and the highest: 1 means
// that a message is as fast as the copy.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/world.h"

namespace dstrain {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int run(int argc, char** argv) {
  constexpr int kCalls = 8;
  const int64_t bytes = (argc > 1 ? std::atoll(argv[1]) : 16) << 20;
  const int rounds = argc > 2 ? std::atoi(argv[2]) : 15;
  auto comm = make_communicator();
  if (comm->size() != 2) {
    std::fprintf(stderr, "message_bench needs two ranks\n");
    return 1;
  }
  const bool sends = comm->rank() == 0;
  const auto pair = comm->split(std::array{0, 1});
  const Memory memory = comm->allocate(2 * bytes, "the benchmark");
  std::memset(memory.data(), 1, static_cast<size_t>(2 * bytes));
  const Tensor tensor{memory.data(), {bytes}, DType::u8};
  std::vector<double> ratios, times;
  for (int round = -1; round < rounds; ++round) {
    comm->barrier();
    auto begin = Clock::now();
    for (int i = 0; i < kCalls; ++i) (sends ? pair->send(tensor) : pair->recv(tensor)).wait();
    const double message = seconds_since(begin) / kCalls;
    comm->barrier();
    begin = Clock::now();
    // Alternately there and back, so that no copy repeats the one before.
    for (int i = 0; i < kCalls && !sends; ++i)
      std::memcpy(memory.data() + (i % 2) * bytes, memory.data() + (1 - i % 2) * bytes,
                  static_cast<size_t>(bytes));
    const double copy = seconds_since(begin) / kCalls;
    if (round < 0) continue;  // warm-up: the first round causes page faults
    times.push_back(message);
    ratios.push_back(copy / message);
  }
  if (!sends) {
    const auto [lowest, highest] = std::minmax_element(ratios.begin(), ratios.end());
    std::printf(
        "%lld MiB: a message takes %.2f ms (%.2f GB/s); copy / message %.2f (%.2f - %.2f)\n",
        static_cast<long long>(bytes >> 20), median(times) * 1e3,
        static_cast<double>(bytes) / median(times) * 1e-9, median(ratios), *lowest, *highest);
  }
  comm->finish();
  return 0;
}

}  // namespace
}  // namespace dstrain

int main(int argc, char** argv) {
  return dstrain::run(argc, argv);
}
