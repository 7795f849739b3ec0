// Started by mpirun: tensors of an emulated device, staged through the host.
#include "runtime/comm/devices/staged_comm.h"

#include <catch2/catch.hpp>
#include <cstring>
#include <vector>

#include "runtime/comm/world.h"
#include "runtime/core/devices/emulated_device.h"

using namespace dstrain;

namespace {

// n values that differ from rank to rank and do not add exactly.
std::vector<float> values_of(int rank, int64_t n) {
  std::vector<float> v(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i)
    v[static_cast<size_t>(i)] = 1.0f / static_cast<float>(3 * rank + i % 1013 + 1);
  return v;
}

class DeviceTensor {
 public:
  DeviceTensor(Device& device, const std::vector<float>& values)
      : device_(device),
        memory_(device.allocate(bytes(values.size()), "a test")),
        n_(values.size()) {
    device.upload(memory_.data(), values.data(), bytes(n_));
  }
  Tensor tensor() const { return {memory_.data(), {static_cast<int64_t>(n_)}, DType::f32}; }
  Tensor part(int64_t begin, int64_t n) const {
    return {tensor().as<float>() + begin, {n}, DType::f32};
  }
  std::vector<float> values() const {
    std::vector<float> v(n_);
    device_.download(v.data(), memory_.data(), bytes(n_));
    return v;
  }

 private:
  static int64_t bytes(size_t n) { return static_cast<int64_t>(n * sizeof(float)); }
  Device& device_;
  Memory memory_;
  size_t n_;
};

Tensor host(std::vector<float>& v) {
  return {v.data(), {static_cast<int64_t>(v.size())}, DType::f32};
}

}  // namespace

TEST_CASE("staged collectives give the host's bits, over any number of windows") {
  const auto comm = make_communicator();
  const auto device = make_emulated_device();
  StagedComm staged(*comm, *device);
  const int size = comm->size(), rank = comm->rank();
  for (const int64_t slice : {int64_t{1}, int64_t{777}, int64_t{3} << 20}) {
    const int64_t n = slice * size;
    INFO(n << " elements");
    std::vector<float> expected = values_of(rank, n);
    DeviceTensor whole(*device, expected);
    comm->all_reduce(host(expected)).wait();
    staged.all_reduce(whole.tensor()).wait();
    CHECK((whole.values() == expected));

    std::vector<float> source = values_of(rank + 7, n), sum(static_cast<size_t>(slice));
    DeviceTensor there(*device, source);
    comm->reduce_scatter(host(source), host(sum)).wait();
    staged.reduce_scatter(there.tensor(), there.part(rank * slice, slice)).wait();
    const std::vector<float> seen = there.values();
    CHECK(std::memcmp(seen.data() + rank * slice, sum.data(), sum.size() * sizeof(float)) == 0);

    std::vector<float> all(static_cast<size_t>(n));
    DeviceTensor gathered(*device, all);
    comm->all_gather(host(sum), host(all)).wait();
    staged.all_gather(there.part(rank * slice, slice), gathered.tensor()).wait();
    CHECK((gathered.values() == all));

    std::vector<float> told = values_of(rank, n);
    DeviceTensor message(*device, told);
    staged.broadcast(message.tensor(), size - 1).wait();
    CHECK((message.values() == values_of(size - 1, n)));
  }
}
