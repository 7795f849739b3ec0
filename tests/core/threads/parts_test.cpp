#include "runtime/core/threads/parts.h"

#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>
#include <vector>

namespace dstrain {
namespace {

// As many threads as a test asks for, until it ends.
class Threads {
 public:
  explicit Threads(int threads) { set_thread_count(threads); }
  ~Threads() { set_thread_count(before_); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

 private:
  int before_ = thread_count();
};

TEST_CASE("each item of each list runs once, whatever the lists and the threads") {
  for (const int threads : {1, 2, 3}) {
    const Threads of_test(threads);
    for (const int64_t lists : {1, 2, 5, 128, 129}) {
      const auto items = [](int64_t list) { return list % 4 * 3; };  // some have none
      std::vector<std::vector<std::atomic<int>>> times(static_cast<size_t>(lists));
      for (int64_t list = 0; list < lists; ++list)
        times[static_cast<size_t>(list)] =
            std::vector<std::atomic<int>>(static_cast<size_t>(items(list)));
      std::atomic<int> outside{0};
      run_lists(lists, items, [&](int64_t part, int64_t list, int64_t item) {
        if (part < 0 || part >= lists || item >= items(list)) ++outside;
        ++times[static_cast<size_t>(list)][static_cast<size_t>(item)];
      });
      CHECK(outside == 0);
      for (const auto& list : times)
        for (const std::atomic<int>& n : list) REQUIRE(n == 1);
    }
  }
}

// The part that runs the first item of list 1 cannot go on before all other items are complete.
TEST_CASE("items of a part that is slow are run by others") {
  const Threads of_test(2);
  constexpr int64_t kItems = 20;
  std::atomic<int64_t> complete{0}, slow{-1}, by_slow{0};
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  run_lists(
      2, [](int64_t) { return kItems; },
      [&](int64_t part, int64_t list, int64_t item) {
        if (list == 1 && item == 0) {
          slow = part;
          while (complete < 2 * kItems - 1 && std::chrono::steady_clock::now() < end)
            std::this_thread::yield();
        } else if (part == slow) {
          ++by_slow;
        }
        ++complete;
      });
  CHECK(complete == 2 * kItems);
  CHECK(by_slow == 0);
}

}  // namespace
}  // namespace dstrain
