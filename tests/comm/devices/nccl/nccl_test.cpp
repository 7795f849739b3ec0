// One rank through NCCL, on one GPU: its calls, its streams and its graphs, as far as they need no second GPU.
#include <catch2/catch.hpp>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runtime/comm/devices/nccl_comm.h"
#include "runtime/comm/world.h"
#include "runtime/core/devices/cuda_device.h"

namespace dstrain {
namespace {

constexpr int64_t kElements = 1000;

// A GPU and a communicator of one rank. Ends the program with ctest's code for a skipped test if there is no GPU.
struct OneRank {
  OneRank() {
    if (cuda_device_count() == 0) {
      std::printf("skipped: %s\n", why_no_cuda().c_str());
      std::exit(77);
    }
    device = make_cuda_device(0);
    comm = make_nccl_communicator(*host, *device);
    in = device->allocate(kElements * 4, "the test");
    out = device->allocate(kElements * 4, "the test");
    std::vector<float> values(kElements);
    for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0f / static_cast<float>(i + 3);
    device->upload(in.data(), values.data(), in.bytes());
  }
  Tensor source() const { return {in.data(), {kElements}, DType::f32}; }
  Tensor target() const { return {out.data(), {kElements}, DType::f32}; }
  std::vector<float> values_of(const Memory& memory) const {
    std::vector<float> values(kElements);
    device->download(values.data(), memory.data(), kElements * 4);
    return values;
  }

  std::unique_ptr<Communicator> host = make_communicator();
  std::unique_ptr<Device> device;
  std::unique_ptr<Communicator> comm;
  Memory in, out;
};

TEST_CASE("NCCL on one rank: every collective is the identity") {
  const OneRank one;
  const std::vector<float> values = one.values_of(one.in);
  one.comm->all_reduce(one.source()).wait();
  one.comm->broadcast(one.source(), 0).wait();
  CHECK(one.values_of(one.in) == values);
  const std::vector<float> zeros(kElements);
  using Copy = Work (Communicator::*)(Tensor, Tensor);
  for (const Copy collective :
       {&Communicator::reduce_scatter, &Communicator::all_gather, &Communicator::all_to_all}) {
    one.device->upload(one.out.data(), zeros.data(), kElements * 4);
    (one.comm.get()->*collective)(one.source(), one.target()).wait();
    CHECK(one.values_of(one.out) == values);
  }
  CHECK(one.comm->wire_bytes() == 0);
}

TEST_CASE("NCCL on one rank: collectives of a stream are captured in a graph and replayed") {
  const OneRank one;
  const std::unique_ptr<Stream> stream = one.device->make_stream();
  StreamCollectives* collectives = one.comm->on_stream();
  REQUIRE(collectives != nullptr);
  collectives->all_gather(one.source(), one.target(),
                          *stream);  // NCCL connects outside of captures
  stream->synchronize();
  const std::vector<float> zeros(kElements), values = one.values_of(one.in);
  one.device->upload(one.out.data(), zeros.data(), kElements * 4);
  REQUIRE(stream->begin_capture());
  collectives->all_reduce(one.source(), *stream);
  collectives->all_gather(one.source(), one.target(), *stream);
  const std::unique_ptr<Graph> graph = stream->end_capture();
  CHECK(one.values_of(one.out) == zeros);
  graph->launch(*stream);
  collectives->replayed(collectives->take_captured_bytes(), *stream);
  stream->synchronize();
  collectives->check_failure();
  CHECK(one.values_of(one.out) == values);
}

TEST_CASE("NCCL on one rank: a part of it is a communicator of its own") {
  const OneRank one;
  const std::vector<int> ranks{0};
  const std::unique_ptr<Communicator> part = one.comm->split(ranks);
  CHECK(part->size() == 1);
  part->all_gather(one.source(), one.target()).wait();
  CHECK(one.values_of(one.out) == one.values_of(one.in));
}

}  // namespace
}  // namespace dstrain
