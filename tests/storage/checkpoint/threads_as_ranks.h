// Ranks that are threads of the test, with the collectives that storage uses.
#pragma once

#include <barrier>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/communicator.h"

namespace dstrain {

// The memory and the barrier by which the threads of a group exchange values. All their ThreadComms share it,
// and it must outlive them.
struct ThreadGroup {
  explicit ThreadGroup(int ranks)
      : size(ranks),
        meeting(ranks),
        values(static_cast<size_t>(ranks)),
        counts(static_cast<size_t>(ranks)) {}
  int size;
  std::barrier<> meeting;
  std::vector<std::vector<double>> values;
  std::vector<std::vector<int32_t>> counts;
};

// The communicator of one thread. It has the collectives that storage uses; the others throw.
class ThreadComm : public Communicator {
 public:
  ThreadComm(ThreadGroup& group, int rank) : group_(group), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return group_.size; }

  void barrier() override { group_.meeting.arrive_and_wait(); }

  void gather_values(std::span<const double> mine, std::span<double> all) override {
    group_.values[static_cast<size_t>(rank_)].assign(mine.begin(), mine.end());
    barrier();
    auto to = all.begin();
    for (const auto& theirs : group_.values) to = std::copy(theirs.begin(), theirs.end(), to);
    barrier();
  }

  // Only for i32.
  Work all_reduce(Tensor inout) override {
    if (inout.dtype != DType::i32) throw std::logic_error("storage adds i32 only");
    auto* values = inout.as<int32_t>();
    group_.counts[static_cast<size_t>(rank_)].assign(values, values + inout.elements());
    barrier();
    for (int64_t i = 0; i < inout.elements(); ++i) {
      values[i] = 0;
      for (const auto& theirs : group_.counts) values[i] += theirs.at(static_cast<size_t>(i));
    }
    barrier();
    return {};
  }

  std::unique_ptr<Communicator> split(std::span<const int>) override {
    return unused<std::unique_ptr<Communicator>>();
  }
  Memory allocate(int64_t, const std::string&) override { return unused<Memory>(); }
  Work reduce_scatter(Tensor, Tensor) override { return unused<Work>(); }
  Work all_gather(Tensor, Tensor) override { return unused<Work>(); }
  Work all_to_all(Tensor, Tensor) override { return unused<Work>(); }
  Work exchange_rows(Tensor, Tensor, RowCounts) override { return unused<Work>(); }
  Work broadcast(Tensor, int) override { return unused<Work>(); }
  Work send(Tensor) override { return unused<Work>(); }
  Work recv(Tensor) override { return unused<Work>(); }
  void abort(const std::string&) override { unused<int>(); }
  int64_t wire_bytes() const override { return 0; }
  void set_deadline(double) override {}
  void set_threads(int) override {}
  void finish() override {}
  void wait_for(int64_t) override {}
  bool poll_for(int64_t) override { return true; }

 private:
  template <class T>
  static T unused() {
    throw std::logic_error("storage does not use this");
  }

  ThreadGroup& group_;
  int rank_;
};

// Runs `body` on every rank. Returns the message of each rank's error, or "".
inline std::vector<std::string> run_ranks(int ranks,
                                          const std::function<void(Communicator&)>& body) {
  ThreadGroup group(ranks);
  std::vector<std::string> errors(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      ThreadComm comm(group, rank);
      try {
        body(comm);
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace dstrain
