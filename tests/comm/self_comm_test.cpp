#include "runtime/comm/self_comm.h"

#include <array>
#include <catch2/catch.hpp>

#include "runtime/comm/world.h"
#include "runtime/core/error.h"

namespace dstrain {
namespace {

TEST_CASE("without mpirun the world is one rank whose collectives are copies") {
  auto comm = make_communicator();
  REQUIRE(comm->size() == 1);
  REQUIRE(comm->rank() == 0);
  Memory memory = comm->allocate(4096, "the test");
  REQUIRE(memory.bytes() == 4096);
  std::array<float, 3> in{1, 2, 3}, out{};
  const Tensor from{in.data(), {3}, DType::f32}, to{out.data(), {3}, DType::f32};
  comm->all_reduce(from).wait();
  REQUIRE(in == std::array<float, 3>{1, 2, 3});
  REQUIRE(comm->reduce_scatter(from, to).poll());
  REQUIRE(out == in);
  in = {4, 5, 6};
  comm->all_gather(from, to).wait();
  REQUIRE(out == in);
  in = {6, 7, 8};
  comm->all_to_all(from, to).wait();
  REQUIRE(out == in);
  comm->broadcast(from, 0).wait();
  comm->barrier();
  std::array<double, 2> mine{7, 8}, all{};
  comm->gather_values(mine, all);
  REQUIRE(all == mine);
  REQUIRE(comm->wire_bytes() == 0);
  comm->finish();
}

TEST_CASE("one rank checks its arguments too") {
  auto comm = make_communicator();
  std::array<float, 3> data{};
  const Tensor three{data.data(), {3}, DType::f32}, two{data.data(), {2}, DType::f32};
  REQUIRE_THROWS_WITH(comm->all_gather(three, two), "a copy of 3 f32 to 2 f32");
  REQUIRE_THROWS_WITH(comm->broadcast(three, 1), "broadcast from rank 1 of 1");
  std::array<double, 2> values{};
  REQUIRE_THROWS_WITH(comm->gather_values({values.data(), 1}, values),
                      "gather_values of 1 values into 2");
}

TEST_CASE("after an abort one rank stops as well, with the first reason") {
  auto comm = make_communicator();
  std::array<float, 3> data{};
  auto work = comm->all_reduce({data.data(), {3}, DType::f32});
  comm->abort("the disk is full");
  comm->abort("something later");
  REQUIRE_THROWS_WITH(work.wait(), "rank 0 stopped the run: the disk is full");
  REQUIRE_THROWS_AS(comm->barrier(), RunError);
}

}  // namespace
}  // namespace dstrain
