// Started by mpirun: collectives in the streams of an emulated device, over a transport that behaves like NCCL.
#include "runtime/comm/devices/stream_comm.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/cuda/library.h"
#include "runtime/comm/world.h"
#include "runtime/core/devices/emulated_device.h"
#include "runtime/core/devices/emulated_stream.h"
#include "tests/support/emulated_transport.h"
#include "tests/support/skip.h"

namespace dstrain {
namespace {

using Bytes = std::vector<std::byte>;

// n values of a rank that do not add exactly, and whose sum depends on the order.
Bytes random_values(DType dtype, int64_t n, int rank) {
  std::mt19937 random(static_cast<unsigned>(rank * 1000 + static_cast<int>(n)));
  std::normal_distribution<float> normal(0, 1);
  Bytes bytes(static_cast<size_t>(n * size_of(dtype)));
  for (int64_t i = 0; i < n; ++i) {
    const float value = normal(random) * (i % 3 == 0 ? 300.0f : 1.0f);
    if (dtype == DType::bf16)
      reinterpret_cast<bf16*>(bytes.data())[i] = from_float<bf16>(value);
    else if (dtype == DType::f16)
      reinterpret_cast<f16*>(bytes.data())[i] = from_float<f16>(value);
    else
      reinterpret_cast<float*>(bytes.data())[i] = value;
  }
  return bytes;
}

// A tensor in an emulated device's memory, `offset` elements behind an aligned address.
struct DeviceValues {
  DeviceValues(Device& owner, DType dtype_in, const Bytes& values, int64_t offset)
      : device(owner),
        dtype(dtype_in),
        n(static_cast<int64_t>(values.size()) / size_of(dtype)),
        begin(offset * size_of(dtype)),
        memory(owner.allocate(begin + static_cast<int64_t>(values.size()) + 64, "a test")) {
    owner.upload(memory.data() + begin, values.data(), static_cast<int64_t>(values.size()));
  }
  Tensor tensor() const { return {memory.data() + begin, {n}, dtype}; }
  Tensor slice(int64_t first, int64_t count) const {
    return {memory.data() + begin + first * size_of(dtype), {count}, dtype};
  }
  Bytes values() const {
    Bytes bytes(static_cast<size_t>(n * size_of(dtype)));
    device.download(bytes.data(), memory.data() + begin, static_cast<int64_t>(bytes.size()));
    return bytes;
  }
  Device& device;
  DType dtype;
  int64_t n, begin;
  Memory memory;
};

Tensor host_tensor(Bytes& bytes, DType dtype) {
  return {bytes.data(), {static_cast<int64_t>(bytes.size()) / size_of(dtype)}, dtype};
}

std::shared_ptr<const RankSum> rank_sum() {
  EmulatedStream stream;
  return make_emulated_library(stream)->make_rank_sum();
}

}  // namespace

TEST_CASE("sums in rank order in streams have the host's bits and a ring's bytes") {
  const auto host = make_communicator();
  const auto device = make_emulated_device();
  const int ranks = host->size(), rank = host->rank();
  StreamComm comm(*host, *device, connect_emulated, rank_sum());
  // The last size travels in several windows.
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
    for (const int64_t slice : {int64_t{1}, int64_t{77}, int64_t{1003}, int64_t{5} << 20}) {
      if (slice > 10000 && dtype != DType::f32) continue;
      const int64_t n = slice * ranks, offset = slice % 5;
      INFO(name_of(dtype) << " " << n);
      Bytes whole = random_values(dtype, n, rank);
      const DeviceValues there(*device, dtype, whole, offset);
      const DeviceValues apart(*device, dtype, Bytes(static_cast<size_t>(slice * size_of(dtype))),
                               offset);
      Bytes sum(static_cast<size_t>(slice * size_of(dtype)));
      host->reduce_scatter(host_tensor(whole, dtype), host_tensor(sum, dtype)).wait();
      int64_t sent = comm.wire_bytes();
      comm.reduce_scatter(there.tensor(), apart.tensor()).wait();
      CHECK((apart.values() == sum));
      CHECK((there.values() == whole));
      CHECK(comm.wire_bytes() - sent ==
            ring_bytes(Collective::reduce_scatter, there.tensor().bytes(), ranks));
      comm.reduce_scatter(there.tensor(), there.slice(rank * slice, slice)).wait();
      Bytes in_place = whole;
      std::memcpy(in_place.data() + static_cast<int64_t>(sum.size()) * rank, sum.data(),
                  sum.size());
      CHECK((there.values() == in_place));

      // One element less than whole slices, so that the last rank's is shorter.
      const int64_t uneven = n - (n > 1 ? 1 : 0);
      whole.resize(static_cast<size_t>(uneven * size_of(dtype)));
      const DeviceValues all(*device, dtype, whole, offset);
      host->all_reduce(host_tensor(whole, dtype)).wait();
      sent = comm.wire_bytes();
      comm.all_reduce(all.tensor()).wait();
      CHECK((all.values() == whole));
      CHECK(comm.wire_bytes() - sent ==
            ring_bytes(Collective::all_reduce, all.tensor().bytes(), ranks));
    }
}

TEST_CASE("the sums of a transport like NCCL are not in rank order") {
  const auto host = make_communicator();
  SKIP_UNLESS(host->size() >= 3, "two summands have one order: needs 3 ranks");
  const auto device = make_emulated_device();
  StreamComm comm(*host, *device, connect_emulated);
  Bytes values = random_values(DType::bf16, 1000, host->rank());
  const DeviceValues there(*device, DType::bf16, values, 0);
  host->all_reduce(host_tensor(values, DType::bf16)).wait();
  comm.all_reduce(there.tensor()).wait();
  CHECK_FALSE((there.values() == values));
}

TEST_CASE("memory is announced to the world and its parts until it is released") {
  const auto host = make_communicator();
  const auto device = make_emulated_device();
  const auto announced = std::make_shared<std::atomic<int>>(0);
  StreamComm comm(*host, *device,
                  [&](Communicator& ranks, Device& of_rank, const std::atomic<double>&) {
                    return std::make_unique<EmulatedTransport>(ranks, of_rank, announced);
                  });
  const auto part = comm.split(std::vector<int>{comm.rank()});
  {
    const Memory memory = comm.allocate(1000, "a test");
    CHECK(memory.bytes() == 1000);
    CHECK(*announced == 2);
    const Memory of_part = part->allocate(1000, "a test");
    CHECK(*announced == 2);
  }
  CHECK(*announced == 0);
}

TEST_CASE("gathers, slices, broadcasts and messages in streams are the host's") {
  const auto host = make_communicator();
  const auto device = make_emulated_device();
  const int ranks = host->size(), rank = host->rank();
  StreamComm comm(*host, *device, connect_emulated, rank_sum());
  constexpr int64_t kSlice = 1003;
  const Bytes mine = random_values(DType::f32, kSlice, rank);
  const DeviceValues own(*device, DType::f32, mine, 1);
  const Bytes empty(static_cast<size_t>(kSlice * ranks * 4));
  const DeviceValues whole(*device, DType::f32, empty, 1), slices(*device, DType::f32, empty, 0);
  comm.all_gather(own.tensor(), whole.tensor()).wait();
  comm.all_to_all(whole.tensor(), slices.tensor()).wait();
  comm.broadcast(own.tensor(), ranks - 1).wait();
  Bytes expected, of_me;
  for (int r = 0; r < ranks; ++r) {
    const Bytes theirs = random_values(DType::f32, kSlice, r),
                slice = random_values(DType::f32, kSlice, rank);
    expected.insert(expected.end(), theirs.begin(), theirs.end());
    of_me.insert(of_me.end(), slice.begin(), slice.end());  // every rank had gathered the same
  }
  CHECK((whole.values() == expected));
  CHECK((slices.values() == of_me));
  CHECK((own.values() == random_values(DType::f32, kSlice, ranks - 1)));

  std::vector<int> pair{rank / 2 * 2, rank / 2 * 2 + 1};
  if (pair[1] >= ranks) pair.pop_back();
  const auto part = comm.split(pair);
  if (part->size() < 2) return;
  if (part->rank() == 0)
    part->send(whole.tensor()).wait();
  else
    part->recv(slices.tensor()).wait();
  if (part->rank() == 1) CHECK((slices.values() == expected));
}

}  // namespace dstrain
