// all_to_all against the definition; run by mpirun with 2, 3 and 4 ranks on every transport.
#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/comm/devices/staged_comm.h"
#include "runtime/comm/world.h"
#include "runtime/core/devices/emulated_device.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

using Bytes = std::vector<std::byte>;

std::unique_ptr<Communicator> world_of_slices() {
  CommOptions options;
  options.deadline_seconds = 60;
  return make_communicator(options);
}

// Byte `i` of the slice that `from` gives to `to`.
std::byte byte_at(int from, int to, int64_t i) {
  return static_cast<std::byte>((i * 7 + i / 251 + from * 31 + to * 101 + 1) & 255);
}

Bytes sent_by(int rank, int ranks, int64_t slice) {
  Bytes bytes;
  for (int to = 0; to < ranks; ++to)
    for (int64_t i = 0; i < slice; ++i) bytes.push_back(byte_at(rank, to, i));
  return bytes;
}

Bytes received_by(int rank, int ranks, int64_t slice) {
  Bytes bytes;
  for (int from = 0; from < ranks; ++from)
    for (int64_t i = 0; i < slice; ++i) bytes.push_back(byte_at(from, rank, i));
  return bytes;
}

bool starts_with(const std::byte* data, const Bytes& bytes) {
  return bytes.empty() || std::memcmp(data, bytes.data(), bytes.size()) == 0;
}

// Exchanges `n` elements per slice, and checks that the source stays and that nothing is written behind the result.
void check_exchange(Communicator& comm, DType dtype, int64_t n, std::byte* in, std::byte* out) {
  const int ranks = comm.size(), me = comm.rank();
  const int64_t slice = n * size_of(dtype);
  const Bytes source = sent_by(me, ranks, slice);
  if (!source.empty()) std::memcpy(in, source.data(), source.size());
  std::memset(out, 0, source.size());
  out[source.size()] = std::byte{77};
  comm.all_to_all({in, {n * ranks}, dtype}, {out, {n * ranks}, dtype}).wait();
  REQUIRE(starts_with(out, received_by(me, ranks, slice)));
  REQUIRE(starts_with(in, source));
  REQUIRE(out[source.size()] == std::byte{77});
}

}  // namespace

TEST_CASE("slice s of rank r becomes slice r of rank s, for every dtype, size and kind of memory") {
  auto comm = world_of_slices();
  constexpr int64_t kLargest = 1300007;  // bytes of a slice that fit no bounce buffer
  const int64_t most = kLargest * comm->size() + 64;
  const Memory from = comm->allocate(most, "the test"), to = comm->allocate(most, "the test");
  Bytes from_outside(static_cast<size_t>(most)), to_outside(static_cast<size_t>(most));
  for (const DType dtype : {DType::u8, DType::bf16, DType::f32, DType::f64})
    for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{7}, int64_t{1000}, int64_t{4097},
                            int64_t{70001}, kLargest / size_of(dtype)}) {
      CAPTURE(n, name_of(dtype));
      const int64_t off = size_of(dtype);  // one element off any alignment
      check_exchange(*comm, dtype, n, from.data() + off, to.data() + off);
      check_exchange(*comm, dtype, n, from_outside.data() + off, to_outside.data() + off);
      // The memory of some ranks only.
      std::byte* in = comm->rank() % 2 == 0 ? from.data() : from_outside.data();
      std::byte* out = comm->rank() == 0 ? to_outside.data() : to.data();
      check_exchange(*comm, dtype, n, in, out);
    }
  comm->finish();
}

TEST_CASE("an all-to-all keeps its place among other operations") {
  auto comm = world_of_slices();
  const int ranks = comm->size(), me = comm->rank();
  constexpr int64_t n = 30011;
  Bytes there = sent_by(me, ranks, n), back(there.size()), again(there.size());
  std::vector<float> ones(5000, 1.0f);
  const Tensor a{there.data(), {n * ranks}, DType::u8}, b{back.data(), {n * ranks}, DType::u8},
      c{again.data(), {n * ranks}, DType::u8}, f{ones.data(), {5000}, DType::f32};
  // Twice is the identity.
  comm->all_to_all(a, b);
  comm->all_reduce(f);
  comm->all_to_all(b, c);
  comm->barrier();
  REQUIRE(starts_with(back.data(), received_by(me, ranks, n)));
  REQUIRE(again == there);
  REQUIRE(ones.back() == static_cast<float>(ranks));
}

TEST_CASE("parts exchange slices among their ranks") {
  auto world = world_of_slices();
  const Memory memory = world->allocate(1 << 20, "the test");
  std::vector<int> same_parity, all;
  for (int r = 0; r < world->size(); ++r) {
    all.push_back(r);
    if (r % 2 == world->rank() % 2) same_parity.push_back(r);
  }
  for (const auto& list : {same_parity, all, std::vector<int>{world->rank()}}) {
    const auto part = world->split(list);
    for (const int64_t n : {0, 1, 777, 20001})
      check_exchange(*part, DType::f32, n, memory.data(), memory.data() + (1 << 19));
  }
  world->finish();
}

TEST_CASE("slices of a device are exchanged through the host, over any number of windows") {
  const auto comm = world_of_slices();
  const auto device = make_emulated_device();
  StagedComm staged(*comm, *device);
  const int ranks = comm->size(), me = comm->rank();
  for (const int64_t n : {int64_t{0}, int64_t{1}, int64_t{777}, int64_t{3} << 20}) {
    const Bytes source = sent_by(me, ranks, n);
    Bytes seen(source.size());
    const auto bytes = static_cast<int64_t>(source.size());
    const Memory in = device->allocate(bytes + 64, "a test"),
                 out = device->allocate(bytes + 64, "a test");
    device->upload(in.data(), source.data(), bytes);
    staged.all_to_all({in.data(), {bytes}, DType::u8}, {out.data(), {bytes}, DType::u8}).wait();
    device->download(seen.data(), out.data(), bytes);
    CHECK((seen == received_by(me, ranks, n)));
  }
}

TEST_CASE("an all-to-all counts (N-1)/N of its bytes, and none of a small one") {
  auto comm = world_of_slices();
  const int64_t ranks = comm->size(), n = 1200;
  Bytes in(static_cast<size_t>(n * ranks)), out(in.size());
  comm->all_to_all({in.data(), {n * ranks}, DType::u8}, {out.data(), {n * ranks}, DType::u8})
      .wait();
  CHECK(comm->wire_bytes() == (ranks - 1) * n);
  comm->all_to_all({in.data(), {ranks}, DType::u8}, {out.data(), {ranks}, DType::u8}).wait();
  CHECK(comm->wire_bytes() == (ranks - 1) * n);
}

TEST_CASE("slices that do not divide the tensor, differ or overlap are internal errors") {
  auto comm = world_of_slices();
  const int64_t ranks = comm->size();
  Bytes bytes(static_cast<size_t>(256 * ranks));
  const auto at = [&](int64_t offset, int64_t n, DType dtype) {
    return Tensor{bytes.data() + offset, {n}, dtype};
  };
  const int64_t half = 128 * ranks;
  CHECK_THROWS_AS(comm->all_to_all(at(0, ranks + 1, DType::u8), at(half, ranks + 1, DType::u8)),
                  InternalError);
  CHECK_THROWS_AS(comm->all_to_all(at(0, ranks, DType::u8), at(half, 2 * ranks, DType::u8)),
                  InternalError);
  CHECK_THROWS_AS(comm->all_to_all(at(0, ranks, DType::f32), at(half, ranks, DType::i32)),
                  InternalError);
  CHECK_THROWS_AS(comm->all_to_all(at(0, 2 * ranks, DType::u8), at(ranks, 2 * ranks, DType::u8)),
                  InternalError);
  comm->barrier();
}

}  // namespace dstrain
