// Communicators of parts of the ranks; run by mpirun with 2, 3 and 4 ranks on every transport.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/world.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Floats = std::vector<float>;

std::unique_ptr<Communicator> world_of_parts() {
  CommOptions options;
  options.deadline_seconds = 60;
  return make_communicator(options);
}

// n values of a rank; their sums depend on the order.
Floats values_of(int rank, int64_t n) {
  Floats v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    v[static_cast<size_t>(i)] = 1.0f / static_cast<float>(3 * rank + i % 1013 + 1);
  return v;
}

Floats sum_of(const std::vector<int>& ranks, int64_t n) {
  Floats sum = values_of(ranks.front(), n);
  for (size_t r = 1; r < ranks.size(); ++r) {
    const Floats next = values_of(ranks[r], n);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += next[i];
  }
  return sum;
}

Floats slice_of(const Floats& whole, int r, int64_t n) {
  return {whole.begin() + r * n, whole.begin() + (r + 1) * n};
}

Tensor tensor(float* data, int64_t n) {
  return {data, {n}, DType::f32};
}

Floats read(const Tensor& t) {
  return {t.as<float>(), t.as<float>() + t.elements()};
}

void write(const Tensor& t, const Floats& values) {
  std::copy(values.begin(), values.end(), t.as<float>());
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(r);
  return ranks;
}

// The ranks whose `group` is this rank's.
std::vector<int> ranks_with(const Communicator& comm, const std::function<int(int)>& group) {
  std::vector<int> ranks = all_ranks(comm.size());
  std::erase_if(ranks, [&](int r) { return group(r) != group(comm.rank()); });
  return ranks;
}

std::vector<int> pair_of(const Communicator& comm) {
  return ranks_with(comm, [](int r) { return r / 2; });
}
std::vector<int> as_even_as_this(const Communicator& comm) {
  return ranks_with(comm, [](int r) { return r % 2; });
}
std::vector<int> outer_or_inner(const Communicator& comm) {
  return ranks_with(comm, [&](int r) { return r == 0 || r == comm.size() - 1 ? 1 : 0; });
}

// Every collective of `part`, which consists of `ranks`, with whole tensors at `data`.
void check_part(Communicator& part, const std::vector<int>& ranks, float* data, int64_t n) {
  const auto size = static_cast<int>(ranks.size());
  const int me = part.rank(), rank = ranks[static_cast<size_t>(me)];
  const Tensor whole = tensor(data, n * size), mine = tensor(data + me * n, n);
  const Floats sum = sum_of(ranks, n * size);

  write(whole, values_of(rank, n * size));
  part.all_reduce(whole).wait();
  REQUIRE(read(whole) == sum);

  write(whole, values_of(rank, n * size));
  part.reduce_scatter(whole, mine).wait();
  REQUIRE(read(mine) == slice_of(sum, me, n));
  part.all_gather(mine, whole).wait();
  REQUIRE(read(whole) == sum);

  write(whole, values_of(rank, n * size));
  part.broadcast(whole, size - 1).wait();
  REQUIRE(read(whole) == values_of(ranks.back(), n * size));

  part.barrier();
  const double number = rank;
  std::vector<double> numbers(ranks.size());
  part.gather_values({&number, 1}, numbers);
  REQUIRE(std::equal(numbers.begin(), numbers.end(), ranks.begin(), ranks.end()));
}

}  // namespace

TEST_CASE("a part numbers its ranks anew and adds in rank order") {
  auto world = world_of_parts();
  const int64_t most = 140001 * world->size();
  const Memory before = world->allocate(most * 4, "the test");
  std::vector<std::pair<std::vector<int>, std::unique_ptr<Communicator>>> parts;
  for (const auto& list : {pair_of(*world), as_even_as_this(*world), outer_or_inner(*world),
                           all_ranks(world->size()), std::vector<int>{world->rank()}})
    parts.emplace_back(list, world->split(list));
  const Memory after = world->allocate(most * 4, "the test");
  Floats outside(static_cast<size_t>(most));
  for (auto& [ranks, part] : parts) {
    REQUIRE(part->size() == static_cast<int>(ranks.size()));
    REQUIRE(ranks[static_cast<size_t>(part->rank())] == world->rank());
    for (auto* data : {reinterpret_cast<float*>(before.data()),
                       reinterpret_cast<float*>(after.data()), outside.data()})
      for (const int64_t n : {0, 1, 1000, 140001}) check_part(*part, ranks, data, n);
  }
  world->finish();
}

TEST_CASE("a part of a part is a part of the world") {
  auto world = world_of_parts();
  const std::vector<int> outer = outer_or_inner(*world);
  auto part = world->split(outer);
  const auto half = ranks_with(*part, [](int r) { return r / 2; });
  std::vector<int> ranks;
  for (const int r : half) ranks.push_back(outer[static_cast<size_t>(r)]);
  auto inner = part->split(half);
  const Memory memory = world->allocate(1 << 16, "the test");
  check_part(*inner, ranks, reinterpret_cast<float*>(memory.data()), 1000);
  inner->finish();
  inner.reset();
  part.reset();
  world->finish();
}

TEST_CASE("the world and its parts do not wait for one another's order") {
  auto world = world_of_parts();
  const std::vector<int> everyone = all_ranks(world->size()), some = as_even_as_this(*world);
  const auto same = world->split(everyone), again = world->split(everyone);
  const auto halves = world->split(some);
  struct Case {
    Communicator* comm;
    const std::vector<int>* ranks;
    Floats data;
    std::vector<Work> works;
  };
  std::vector<Case> cases{{world.get(), &everyone, {}, {}},
                          {same.get(), &everyone, {}, {}},
                          {again.get(), &everyone, {}, {}},
                          {halves.get(), &some, {}, {}}};
  constexpr int64_t n = 20001;
  constexpr int kOperations = 4;
  for (int round = 0; round < 3; ++round) {
    for (Case& c : cases) {
      c.works.clear();
      c.data.clear();
      for (int k = 0; k < kOperations; ++k) {
        const Floats mine = values_of(world->rank(), n);
        c.data.insert(c.data.end(), mine.begin(), mine.end());
      }
    }
    // The ranks start with another communicator each.
    for (int k = 0; k < kOperations; ++k)
      for (size_t i = 0; i < cases.size(); ++i) {
        Case& c = cases[(i + static_cast<size_t>(world->rank() + round)) % cases.size()];
        c.works.push_back(c.comm->all_reduce(tensor(c.data.data() + k * n, n)));
      }
    for (bool complete = false; !complete;) {
      complete = true;
      std::this_thread::yield();
      for (Case& c : cases) complete = c.works.back().poll() && complete;
    }
    for (Case& c : cases) {
      const Floats sum = sum_of(*c.ranks, n);
      for (int k = 0; k < kOperations; ++k) REQUIRE(slice_of(c.data, k, n) == sum);
    }
  }
  world->finish();
}

TEST_CASE("wire bytes of the world include those of its parts") {
  auto world = world_of_parts();
  const int64_t n = 1200;
  Floats data(static_cast<size_t>(n));
  const auto all = world->split(all_ranks(world->size()));
  all->all_reduce(tensor(data.data(), n)).wait();
  const int64_t sent = 2 * n * 4 * (world->size() - 1) / world->size();
  REQUIRE(all->wire_bytes() == sent);
  REQUIRE(world->wire_bytes() == sent);
  world->all_reduce(tensor(data.data(), n)).wait();
  REQUIRE(all->wire_bytes() == sent);
  REQUIRE(world->wire_bytes() == 2 * sent);
}

TEST_CASE("wrong lists are internal errors, and a part allocates nothing") {
  auto world = world_of_parts();
  const int rank = world->rank(), size = world->size();
  for (const std::vector<int>& list :
       std::vector<std::vector<int>>{{}, {rank == 0 ? 1 : 0}, {1, 0}, {0, 1, size}, {rank, rank}})
    REQUIRE_THROWS_AS(world->split(list), InternalError);
  const auto part = world->split(all_ranks(size));
  REQUIRE_THROWS_AS(part->allocate(4096, "the test"), InternalError);
  world->barrier();
}

TEST_CASE("lists that overlap stop every rank") {
  auto world = world_of_parts();
  const std::vector<int> list = world->rank() == 0 ? std::vector<int>{0} : all_ranks(world->size());
  REQUIRE_THROWS_AS(
      [&] {
        const auto part = world->split(list);
        world->barrier();
      }(),
      RunError);
}

}  // namespace dstrain
