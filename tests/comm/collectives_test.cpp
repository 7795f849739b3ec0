// Every collective, dtype and size against an oracle that adds in rank order on this rank alone; run
// by mpirun with 2, 3 and 4 ranks, through shared memory, through messages, and with ranks of several
// machines, real or (DSTRAIN_COMM=hosts:...) pretended.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/world.h"
#include "runtime/comm/world_environment.h"
#include "runtime/core/error.h"
#include "runtime/core/philox.h"

namespace dstrain {
namespace {

using Bytes = std::vector<std::byte>;

// Element `i` of rank `r`: finite values of mixed size and sign, whose sum depends on the order.
void write_element(DType dtype, std::byte* at, int r, int64_t i) {
  const uint64_t random = mix64(static_cast<uint64_t>(i) * 64 + static_cast<uint64_t>(r));
  const auto low = static_cast<uint32_t>(random), high = static_cast<uint32_t>(random >> 32);
  const float x = (static_cast<float>(low) / 65536.0f - 32768.0f) * (high % 3 == 0   ? 1.0f
                                                                     : high % 3 == 1 ? 0.001f
                                                                                     : 0.03f);
  const auto store = [&](auto value) { std::memcpy(at, &value, sizeof value); };
  switch (dtype) {
    case DType::f32:
      return store(x);
    case DType::bf16:
      return store(to_bf16(x));
    case DType::f16:
      return store(to_f16(x));
    case DType::f64:
      return store(static_cast<double>(x) * 1.000000001);
    case DType::i32:
      return store(static_cast<int32_t>(low));
    case DType::u8:
      return store(static_cast<uint8_t>(low));
  }
}

template <class T, class Wide>
void add(std::byte* sum, const Bytes& bytes, int64_t i, int r, Wide& accumulator) {
  T value;
  std::memcpy(&value, bytes.data() + i * static_cast<int64_t>(sizeof(T)), sizeof value);
  if constexpr (std::is_same_v<Wide, float>)
    accumulator = r == 0 ? to_float(value) : accumulator + to_float(value);
  else
    accumulator = r == 0 ? value : accumulator + value;
  if constexpr (std::is_same_v<Wide, float>)
    value = from_float<T>(accumulator);
  else
    value = static_cast<T>(accumulator);
  std::memcpy(sum, &value, sizeof value);
}

Bytes made_by(DType dtype, int r, int64_t n) {
  Bytes bytes(static_cast<size_t>(n * size_of(dtype)));
  for (int64_t i = 0; i < n; ++i) write_element(dtype, bytes.data() + i * size_of(dtype), r, i);
  return bytes;
}

// Every rank's elements and their sum. A shorter tensor is a prefix of a longer one.
class Oracle {
 public:
  Oracle(DType dtype, int ranks, int64_t n) : dtype_(dtype) {
    for (int r = 0; r < ranks; ++r) parts_.push_back(made_by(dtype, r, n));
    sum_.resize(static_cast<size_t>(n * size_of(dtype)));
    for (int64_t i = 0; i < n; ++i) {
      std::byte* at = sum_.data() + i * size_of(dtype);
      float f = 0;
      double d = 0;
      uint32_t u = 0;
      for (int r = 0; r < ranks; ++r) {
        const Bytes& part = parts_[static_cast<size_t>(r)];
        if (dtype == DType::f32) add<float>(at, part, i, r, f);
        if (dtype == DType::bf16) add<bf16>(at, part, i, r, f);
        if (dtype == DType::f16) add<f16>(at, part, i, r, f);
        if (dtype == DType::f64) add<double>(at, part, i, r, d);
        if (dtype == DType::i32) add<uint32_t>(at, part, i, r, u);
      }
    }
  }
  Bytes part(int r, int64_t n) const { return prefix(parts_[static_cast<size_t>(r)], n); }
  Bytes sum(int64_t n) const { return prefix(sum_, n); }

 private:
  Bytes prefix(const Bytes& all, int64_t n) const {
    return {all.begin(), all.begin() + n * size_of(dtype_)};
  }

  DType dtype_;
  std::vector<Bytes> parts_;
  Bytes sum_;
};

Bytes sum_of(DType dtype, int ranks, int64_t n) {
  return Oracle(dtype, ranks, n).sum(n);
}

Bytes slice_of(const Bytes& whole, int r, int ranks) {
  const auto n = static_cast<int64_t>(whole.size()) / ranks;
  return {whole.begin() + r * n, whole.begin() + (r + 1) * n};
}

CommOptions one_minute_deadline() {
  CommOptions options;
  options.deadline_seconds = 60;
  return options;
}

// A tensor of `n` elements, one element off any alignment of the memory it lies in.
Tensor tensor_in(std::byte* memory, DType dtype, int64_t n) {
  return {memory + size_of(dtype), {n}, dtype};
}

Tensor fill(Tensor tensor, const Bytes& bytes) {
  if (!bytes.empty()) std::memcpy(tensor.data, bytes.data(), bytes.size());
  return tensor;
}

bool equal(const Tensor& tensor, const Bytes& bytes) {
  return static_cast<int64_t>(bytes.size()) == tensor.bytes() &&
         (bytes.empty() || std::memcmp(tensor.data, bytes.data(), bytes.size()) == 0);
}

// Where a tensor lies: in allocate()'s memory, outside it, or in it on rank 0 only.
enum class MemoryKind { inside, outside, mixed };

class TensorMemory {
 public:
  TensorMemory(Communicator& comm, MemoryKind kind, int64_t bytes) {
    if (kind != MemoryKind::outside) shared_ = comm.allocate(bytes + 64, "a tensor of the test");
    if (kind == MemoryKind::outside || (kind == MemoryKind::mixed && comm.rank() != 0))
      own_.resize(static_cast<size_t>(bytes + 64));
  }
  std::byte* data() { return own_.empty() ? shared_.data() : own_.data(); }

 private:
  Memory shared_;
  Bytes own_;
};

void check_collectives(Communicator& comm, const Oracle& oracle, DType dtype, int64_t n,
                       std::byte* slice_at, std::byte* whole_at) {
  const int ranks = comm.size(), me = comm.rank(), root = ranks - 1;
  const Tensor slice = tensor_in(slice_at, dtype, n);
  const Tensor whole = tensor_in(whole_at, dtype, n * ranks);
  const Tensor mine{whole.as<std::byte>() + me * slice.bytes(), {n}, dtype};
  const Bytes whole_sum = oracle.sum(n * ranks);

  fill(slice, oracle.part(me, n));
  comm.all_reduce(slice).wait();
  REQUIRE(equal(slice, oracle.sum(n)));

  fill(whole, oracle.part(me, n * ranks));
  comm.reduce_scatter(whole, slice).wait();
  REQUIRE(equal(slice, slice_of(whole_sum, me, ranks)));
  comm.reduce_scatter(whole, mine).wait();
  REQUIRE(equal(mine, slice_of(whole_sum, me, ranks)));

  comm.all_gather(mine, whole).wait();
  REQUIRE(equal(whole, whole_sum));
  fill(whole, oracle.part(me, n * ranks));
  comm.all_gather(slice, whole).wait();
  REQUIRE(equal(whole, whole_sum));

  fill(slice, oracle.part(me, n));
  comm.broadcast(slice, root).wait();
  REQUIRE(equal(slice, oracle.part(root, n)));
}

}  // namespace

TEST_CASE("collectives give the oracle's bits for every dtype, size and kind of memory") {
  auto comm = make_communicator(one_minute_deadline());
  const int ranks = comm->size();
  REQUIRE(ranks == world_size_from_environment());
  const DType dtype = GENERATE(DType::f32, DType::bf16, DType::f16, DType::f64, DType::i32);
  // The largest does not fit a bounce buffer.
  const int64_t largest = dtype == DType::f32 || dtype == DType::bf16 ? 300007 : 4099;
  const Oracle oracle(dtype, ranks, largest * ranks);
  for (MemoryKind kind : {MemoryKind::inside, MemoryKind::outside, MemoryKind::mixed}) {
    TensorMemory slice(*comm, kind, largest * 8), whole(*comm, kind, largest * 8 * ranks);
    for (int64_t n : {int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{17}, int64_t{1000},
                      int64_t{4099}, largest}) {
      CAPTURE(static_cast<int>(kind), n, name_of(dtype));
      check_collectives(*comm, oracle, dtype, n, slice.data(), whole.data());
    }
  }
}

TEST_CASE("a large all-reduce has the oracle's bits in any memory, with one thread and with two") {
  CommOptions options = one_minute_deadline();
  options.threads = GENERATE(1, 2);
  auto comm = make_communicator(options);
  const int64_t n = 2500009;
  const DType dtype = GENERATE(DType::f32, DType::bf16);
  const Bytes expected = sum_of(dtype, comm->size(), n);
  for (MemoryKind kind : {MemoryKind::inside, MemoryKind::outside}) {
    TensorMemory place(*comm, kind, n * 4);
    const Tensor tensor = fill(tensor_in(place.data(), dtype, n), made_by(dtype, comm->rank(), n));
    comm->all_reduce(tensor).wait();
    REQUIRE(equal(tensor, expected));
  }
}

TEST_CASE("bytes and halves of memory are gathered and broadcast as they are") {
  auto comm = make_communicator(one_minute_deadline());
  const int ranks = comm->size();
  Bytes whole(static_cast<size_t>(5 * ranks)), slice = made_by(DType::u8, comm->rank(), 5);
  comm->all_gather({slice.data(), {5}, DType::u8}, {whole.data(), {5 * ranks}, DType::u8}).wait();
  for (int r = 0; r < ranks; ++r) REQUIRE(slice_of(whole, r, ranks) == made_by(DType::u8, r, 5));
}

TEST_CASE("operations complete in the order they were started") {
  auto comm = make_communicator(one_minute_deadline());
  const int64_t n = 50000;
  Memory memory = comm->allocate(8 * n * 4, "the test");
  std::vector<Tensor> tensors;
  std::vector<Work> works;
  for (int64_t k = 0; k < 8; ++k) {
    tensors.push_back({memory.data() + k * n * 4, {n}, DType::f32});
    fill(tensors.back(), made_by(DType::f32, comm->rank(), n));
    works.push_back(comm->all_reduce(tensors.back()));
  }
  const Bytes expected = sum_of(DType::f32, comm->size(), n);
  while (!works[4].poll()) {
  }
  for (size_t k = 0; k <= 4; ++k) {
    REQUIRE(works[k].poll());
    REQUIRE(equal(tensors[k], expected));
  }
  works.pop_back();  // a dropped Work completes with a later operation
  comm->barrier();
  REQUIRE(equal(tensors[7], expected));
  REQUIRE(works[6].poll());
}

TEST_CASE("many operations of all kinds, under way together, do not mix") {
  auto comm = make_communicator(one_minute_deadline());
  const int ranks = comm->size(), me = comm->rank();
  constexpr int64_t kMost = 70000;
  constexpr int kOperations = 48;
  struct Case {
    std::unique_ptr<TensorMemory> place;
    Tensor result;
    Bytes expected;
    Work work;
  };
  std::vector<Case> cases;
  const Oracle oracle(DType::bf16, ranks, kMost * ranks);
  for (uint64_t k = 0; k < kOperations; ++k) {
    const uint64_t random = mix64(k);
    const auto n = static_cast<int64_t>(random % kMost) >> (random >> 20) % 12;
    const bool sliced = k % 4 == 1 || k % 4 == 2;
    Case c{std::make_unique<TensorMemory>(
               *comm, k % 3 == 0 ? MemoryKind::mixed : MemoryKind::inside, kMost * 2 * ranks),
           {},
           {},
           {}};
    const Tensor whole = tensor_in(c.place->data(), DType::bf16, sliced ? n * ranks : n);
    const Tensor part{whole.as<std::byte>() + me * n * 2, {n}, DType::bf16};
    fill(whole, oracle.part(me, whole.elements()));
    const Bytes sum = oracle.sum(whole.elements());
    c.result = k % 4 == 1 ? part : whole;
    if (k % 4 == 0) {
      c.expected = sum;
      c.work = comm->all_reduce(whole);
    } else if (k % 4 == 1) {
      c.expected = slice_of(sum, me, ranks);
      c.work = comm->reduce_scatter(whole, part);
    } else if (k % 4 == 2) {
      for (int r = 0; r < ranks; ++r) {
        const Bytes slice = slice_of(oracle.part(r, whole.elements()), r, ranks);
        c.expected.insert(c.expected.end(), slice.begin(), slice.end());
      }
      c.work = comm->all_gather(part, whole);
    } else {
      const int root = static_cast<int>(random >> 40) % ranks;
      c.expected = oracle.part(root, n);
      c.work = comm->broadcast(whole, root);
    }
    cases.push_back(std::move(c));
  }
  for (size_t k = 0; k < cases.size(); ++k) {
    CAPTURE(k);
    cases[k].work.wait();
    REQUIRE(equal(cases[k].result, cases[k].expected));
  }
}

TEST_CASE("values are gathered in rank order, the largest message included") {
  auto comm = make_communicator(one_minute_deadline());
  const auto ranks = static_cast<size_t>(comm->size());
  for (size_t n : {0, 1, 3, 128}) {
    for (int round = 0; round < 50; ++round) {
      std::vector<double> mine(n), all(n * ranks, -1), expected;
      for (size_t i = 0; i < n; ++i) mine[i] = comm->rank() + 0.5 * static_cast<double>(i) + round;
      comm->gather_values(mine, all);
      for (size_t r = 0; r < ranks; ++r)
        for (size_t i = 0; i < n; ++i)
          expected.push_back(static_cast<double>(r) + 0.5 * static_cast<double>(i) + round);
      REQUIRE(all == expected);
    }
  }
}

TEST_CASE("released memory is not mistaken for shared memory") {
  auto comm = make_communicator(one_minute_deadline());
  const int64_t n = 300;
  { const Memory gone = comm->allocate(1 << 16, "released at once"); }
  Memory again = Memory::anonymous(1 << 16, "likely at the same address");
  const Tensor tensor = fill({again.data(), {n}, DType::f32}, made_by(DType::f32, comm->rank(), n));
  comm->all_reduce(tensor).wait();
  REQUIRE(equal(tensor, sum_of(DType::f32, comm->size(), n)));
}

TEST_CASE("wire bytes follow the ring formula and leave small messages out") {
  auto comm = make_communicator(one_minute_deadline());
  const int64_t ranks = comm->size(), n = 1200;
  Bytes slice(static_cast<size_t>(n * 4)), whole(static_cast<size_t>(n * 4 * ranks));
  const Tensor part{slice.data(), {n}, DType::f32}, all{whole.data(), {n * ranks}, DType::f32};
  comm->all_reduce(all).wait();
  REQUIRE(comm->wire_bytes() == 2 * (ranks - 1) * n * 4);
  comm->reduce_scatter(all, part).wait();
  comm->all_gather(part, all).wait();
  REQUIRE(comm->wire_bytes() == 4 * (ranks - 1) * n * 4);
  comm->all_reduce({slice.data(), {255}, DType::f32}).wait();
  comm->barrier();
  REQUIRE(comm->wire_bytes() == 4 * (ranks - 1) * n * 4);
}

// Hidden: it moves half a gigabyte, and tells something only where tags are few.
TEST_CASE("more windows pass between hosts than there are tags", "[.][many_windows]") {
  auto comm = make_communicator(one_minute_deadline());
  constexpr int64_t n = int64_t{64} << 10;  // eight windows where a host has two ranks
  std::vector<int32_t> numbers(static_cast<size_t>(n));
  for (int32_t i = 0; i < 2200; ++i) {
    const int root = i % comm->size();
    std::fill(numbers.begin(), numbers.end(), comm->rank() == root ? i : -1);
    comm->broadcast({numbers.data(), {n}, DType::i32}, root).wait();
    REQUIRE(std::count(numbers.begin(), numbers.end(), i) == n);
  }
  comm->finish();
}

TEST_CASE("wrong arguments are internal errors") {
  auto comm = make_communicator(one_minute_deadline());
  const int64_t ranks = comm->size();
  Bytes bytes(static_cast<size_t>(64 * ranks));
  const auto tensor = [&](int64_t n, DType dtype) { return Tensor{bytes.data(), {n}, dtype}; };
  REQUIRE_THROWS_AS(comm->all_reduce(tensor(8, DType::u8)), InternalError);
  REQUIRE_THROWS_AS(comm->broadcast(tensor(8, DType::u8), comm->size()), InternalError);
  REQUIRE_THROWS_AS(comm->all_gather(tensor(2, DType::f32), tensor(2 * ranks + 1, DType::f32)),
                    InternalError);
  REQUIRE_THROWS_AS(comm->all_gather(tensor(2, DType::f32), tensor(2 * ranks, DType::bf16)),
                    InternalError);
  REQUIRE_THROWS_AS(
      comm->all_gather({bytes.data() + 4, {2}, DType::f32}, tensor(2 * ranks, DType::f32)),
      InternalError);
  std::vector<double> mine(129), all(129 * static_cast<size_t>(ranks));
  REQUIRE_THROWS_AS(comm->gather_values(mine, all), InternalError);
  comm->barrier();
}

}  // namespace dstrain
