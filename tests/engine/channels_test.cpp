// A queue with several channels, between ranks that are threads of the test and share memory.
#include <array>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "launcher/implementations.h"
#include "runtime/engine/step/queues/comm_queue.h"
#include "tests/engine/shared_world.h"

namespace dstrain {
namespace {

constexpr int64_t kElements = 30011;

Tensor channel_tensor(std::vector<float>& values) {
  return {values.data(), {static_cast<int64_t>(values.size())}, DType::f32};
}

std::vector<float> filled(int value) {
  return std::vector<float>(static_cast<size_t>(kElements), static_cast<float>(value));
}

// Makes the channels of two ranks: the world, messages from rank 0 to rank 1, and back.
struct Channels {
  explicit Channels(Communicator& world)
      : there(world.split(std::array{0, 1})), back(world.split(std::array{0, 1})) {}
  std::unique_ptr<Communicator> there, back;
};

}  // namespace

TEST_CASE("two stages exchange messages in both directions, and a sum beside them") {
  const bool own_thread = GENERATE(false, true);
  constexpr int kMicros = 8;
  const RankBoard board = board_of(2);
  std::array<int, 2> wrong{};
  const auto errors = run_ranks(2, [&](int rank) {
    const auto world = join_board(board, rank);
    const Channels parts(*world);
    const Backend backend = make_backend(implementations(), DeviceChoice::cpu);
    const std::array<Communicator*, 3> channels{world.get(), parts.there.get(), parts.back.get()};
    const std::array<size_t, 3> most{2, kMicros, kMicros};
    const auto queue = make_comm_queue(channels, backend, most, own_thread);
    int& bad = wrong[static_cast<size_t>(rank)];
    for (int step = 0; step < 10; ++step) {
      std::vector<std::vector<float>> out, in;
      for (int m = 0; m < kMicros; ++m) {
        out.push_back(filled(100 * step + 10 * m + rank));
        in.push_back(filled(-1));
      }
      auto sum = filled(rank + 1), more = filled(1);
      const auto at = [](auto& list, int m) {
        return channel_tensor(list[static_cast<size_t>(m)]);
      };
      const auto expect = [&](int m) {
        bad += in[static_cast<size_t>(m)] != filled(100 * step + 10 * m + 1 - rank);
      };
      const int sends = rank == 0 ? 1 : 2, receives = 3 - sends;
      queue->post(0, OpKind::all_reduce, channel_tensor(sum), channel_tensor(sum));
      // The first rank is two messages ahead of what it receives; the sums come in another order.
      const int ahead = rank == 0 ? 2 : 0;
      for (int m = 0; m < kMicros + ahead; ++m) {
        queue->poll();
        if (rank == 0 && m < kMicros) queue->post(sends, OpKind::send, at(out, m), {});
        if (m < ahead) continue;
        queue->post(receives, OpKind::recv, {}, at(in, m - ahead));
        queue->wait(receives, m - ahead + 1);
        expect(m - ahead);
        if (rank == 1) queue->post(sends, OpKind::send, at(out, m), {});
      }
      queue->post(0, OpKind::all_reduce, channel_tensor(more), channel_tensor(more));
      if (rank == 0) {
        queue->wait(0, 2);
        queue->wait(sends, kMicros);
      } else {
        queue->wait(sends, kMicros);
        queue->wait(0, 2);
      }
      bad += sum != filled(3);
      bad += more != filled(2);
      queue->restart();
    }
    world->finish();
  });
  for (const std::string& error : errors) CHECK(error.empty());
  CHECK(wrong == std::array{0, 0});
}

TEST_CASE("a wait among several channels ends at the deadline and names the rank") {
  const bool own_thread = GENERATE(false, true);
  const RankBoard board = board_of(2);
  std::atomic<bool> over{false};
  std::atomic<int> waited_for{-1};
  const auto errors = run_ranks(2, [&](int rank) {
    const auto world = join_board(board, rank);
    const Channels parts(*world);
    world->set_deadline(0.5);
    const Backend backend = make_backend(implementations(), DeviceChoice::cpu);
    if (rank == 1) {
      while (!over) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (const int peer = board.slot(0).waits_for.load(); peer >= 0) waited_for = peer;
      }
      return world->barrier();
    }
    std::vector<float> values(4), others(4);
    const std::array<Communicator*, 2> channels{parts.there.get(), parts.back.get()};
    const std::array<size_t, 2> most{1, 1};
    const auto queue = make_comm_queue(channels, backend, most, own_thread);
    try {
      queue->post(0, OpKind::send, channel_tensor(values), {});
      queue->post(1, OpKind::recv, {}, channel_tensor(others));
      queue->wait(0, 1);
    } catch (...) {
      over = true;
      throw;
    }
  });
  CHECK_THAT(errors[0],
             Catch::Matches("rank 0 waited [0-9.]+ s for rank 1 \\(pid \\d+\\) in message "
                            "#1 \\(16 bytes of f32 from rank 0\\): the deadline is 0.5 s"));
  CHECK_THAT(errors[1], Catch::StartsWith("rank 0 stopped the run: "));
  CHECK(waited_for == 1);
}

TEST_CASE("an abort ends a wait among several channels") {
  const bool own_thread = GENERATE(false, true);
  const RankBoard board = board_of(2);
  const auto errors = run_ranks(2, [&](int rank) {
    const auto world = join_board(board, rank);
    const Channels parts(*world);
    const Backend backend = make_backend(implementations(), DeviceChoice::cpu);
    if (rank == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return parts.back->abort("the disk is full");
    }
    std::vector<float> values(4);
    const std::array<Communicator*, 2> channels{world.get(), parts.back.get()};
    const std::array<size_t, 2> most{1, 1};
    const auto queue = make_comm_queue(channels, backend, most, own_thread);
    queue->post(1, OpKind::recv, {}, channel_tensor(values));
    queue->wait(1, 1);
  });
  CHECK(errors[0] == "rank 1 stopped the run: the disk is full");
}

}  // namespace dstrain
