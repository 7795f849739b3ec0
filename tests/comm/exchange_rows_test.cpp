// exchange_rows against the definition; run by mpirun with 2, 3 and 4 ranks on every transport.
#include <algorithm>
#include <catch2/catch.hpp>
#include <random>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/world.h"

namespace dstrain {
namespace {

std::unique_ptr<Communicator> world_of_rows() {
  CommOptions options;
  options.deadline_seconds = 60;
  return make_communicator(options);
}

// The same on every rank. `most`: rows of one rank for another.
std::vector<int32_t> counts_of(int ranks, uint32_t seed, int most) {
  std::mt19937 random(seed);
  const auto wide = static_cast<size_t>(ranks);
  std::vector<int32_t> counts(wide * wide);
  for (int32_t& count : counts)
    count =
        random() % 4 == 0 ? 0 : static_cast<int32_t>(random() % static_cast<uint32_t>(most + 1));
  return counts;
}

// Element `i` of what `from` sends to `to`.
float element_at(int from, int to, int64_t i) {
  return static_cast<float>(i % 1021 + 1024 * from + 65536 * to);
}

constexpr float kUntouched = -1;

// Sends rows, checks what has come, and sends that back, which must be what was sent.
void check_rows(Communicator& comm, const std::vector<int32_t>& counts, int64_t columns,
                const Memory& there, const Memory& here) {
  const int ranks = comm.size(), me = comm.rank();
  const RowCounts forth{counts.data(), ranks, false, columns};
  RowCounts back = forth;
  back.back = true;
  const int64_t sent = forth.sent(me), received = forth.received(me);
  auto* const in = reinterpret_cast<float*>(there.data());
  auto* const out = reinterpret_cast<float*>(here.data());
  std::vector<float> source, expected;
  for (int r = 0; r < ranks; ++r) {
    for (int64_t i = 0; i < forth.elements(me, r); ++i) source.push_back(element_at(me, r, i));
    for (int64_t i = 0; i < forth.elements(r, me); ++i) expected.push_back(element_at(r, me, i));
  }
  std::copy(source.begin(), source.end(), in);
  std::fill_n(out, received + columns, kUntouched);
  const Tensor a{in, {sent / columns, columns}, DType::f32},
      b{out, {received / columns + 1, columns}, DType::f32};
  comm.exchange_rows(a, b, forth).wait();
  REQUIRE(std::vector<float>(out, out + received) == expected);
  REQUIRE(std::vector<float>(in, in + sent) == source);
  REQUIRE(std::all_of(out + received, out + received + columns,
                      [](float v) { return v == kUntouched; }));
  std::fill_n(in, sent, kUntouched);
  comm.exchange_rows(b, a, back).wait();
  REQUIRE(std::vector<float>(in, in + sent) == source);
}

}  // namespace

TEST_CASE("rows come to the ranks that they are for, in the order of senders, and back") {
  auto comm = world_of_rows();
  const int64_t bytes = int64_t{32} << 20;
  const Memory there = comm->allocate(bytes, "the test"), here = comm->allocate(bytes, "the test");
  for (const auto& [most, columns] :
       {std::pair<int, int64_t>{0, 3}, {1, 1}, {5, 7}, {300, 64}, {2000, 500}})
    for (const uint32_t seed : {1U, 2U, 3U}) {
      CAPTURE(most, columns, seed);
      check_rows(*comm, counts_of(comm->size(), seed, most), columns, there, here);
    }
  // All rows are one rank's.
  const auto ranks = static_cast<size_t>(comm->size());
  std::vector<int32_t> all(ranks * ranks);
  for (size_t r = 0; r < ranks; ++r) all[r * ranks] = 1000;
  check_rows(*comm, all, 129, there, here);
  comm->finish();
}

TEST_CASE("parts exchange rows, and an exchange keeps its place among other operations") {
  auto world = world_of_rows();
  const Memory there = world->allocate(1 << 20, "the test"),
               here = world->allocate(1 << 20, "the test");
  std::vector<int> same_parity;
  for (int r = world->rank() % 2; r < world->size(); r += 2) same_parity.push_back(r);
  for (const auto& list : {same_parity, std::vector<int>{world->rank()}}) {
    const auto part = world->split(list);
    std::vector<float> ones(100, 1.0f);
    const Tensor sum{ones.data(), {100}, DType::f32};
    const Work before = part->all_reduce(sum);
    check_rows(*part, counts_of(part->size(), 5, 40), 33, there, here);
    Work(before).wait();
    CHECK(ones.back() == static_cast<float>(part->size()));
  }
  world->finish();
}

TEST_CASE("an exchange of rows counts the bytes that leave the rank") {
  auto comm = world_of_rows();
  const Memory there = comm->allocate(1 << 20, "the test"),
               here = comm->allocate(1 << 20, "the test");
  const int ranks = comm->size(), me = comm->rank();
  const std::vector<int32_t> counts = counts_of(ranks, 9, 50);
  const RowCounts rows{counts.data(), ranks, false, 8};
  comm->exchange_rows({there.data(), {rows.sent(me) / 8, 8}, DType::bf16},
                      {here.data(), {rows.received(me) / 8, 8}, DType::bf16}, rows)
      .wait();
  CHECK(comm->wire_bytes() == 2 * (rows.sent(me) - rows.elements(me, me)));
  comm->finish();
}

}  // namespace dstrain
