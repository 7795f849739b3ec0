#include "runtime/core/collective/collective.h"

#include <catch2/catch.hpp>
#include <set>

namespace dstrain {
namespace {

TEST_CASE("wire bytes are the ring's: 2(N-1)/N for all-reduce, (N-1)/N for scatter and gather") {
  REQUIRE(ring_bytes(Collective::all_reduce, 4096, 4) == 6144);
  REQUIRE(ring_bytes(Collective::reduce_scatter, 4096, 4) == 3072);
  REQUIRE(ring_bytes(Collective::all_gather, 4096, 4) == 3072);
  REQUIRE(ring_bytes(Collective::all_to_all, 4096, 4) == 3072);
  REQUIRE(ring_bytes(Collective::broadcast, 4096, 4) == 4096);
  REQUIRE(ring_bytes(Collective::message, 4096, 2) == 4096);
  REQUIRE(ring_bytes(Collective::all_reduce, 1024, 2) == 1024);
  REQUIRE(ring_bytes(Collective::all_reduce, 1023, 2) == 0);
  REQUIRE(ring_bytes(Collective::all_reduce, 4097, 3) == 5462);  // rounded once, down
  REQUIRE(ring_bytes(Collective::all_reduce, 4096, 1) == 0);
  REQUIRE(ring_bytes(Collective::barrier, 4096, 4) == 0);
  REQUIRE(ring_bytes(Collective::gather_values, 4096, 4) == 0);
}

TEST_CASE(
    "kinds have names of their own, and only what carries a tensor adds, copies or has slices") {
  std::set<std::string_view> names;
  for (const CollectiveTraits& traits : kCollectives) {
    CAPTURE(traits.name);
    CHECK(names.insert(traits.name).second);
    const bool sliced = traits.sliced_source || traits.sliced_result;
    if (!traits.has_tensor) CHECK_FALSE((traits.makes_sums || traits.copies || sliced));
    CHECK((traits.ring_passes > 0) == (traits.has_tensor && !traits.copies));
    if (traits.adds) CHECK(traits.makes_sums);
  }
}

TEST_CASE("a source or a result has a slice of each rank where the kind divides it") {
  CHECK(source_slices(Collective::all_reduce, 4) == 1);
  CHECK(source_slices(Collective::reduce_scatter, 4) == 4);
  CHECK(result_slices(Collective::reduce_scatter, 4) == 1);
  CHECK(source_slices(Collective::all_gather, 4) == 1);
  CHECK(result_slices(Collective::all_gather, 4) == 4);
  CHECK(source_slices(Collective::all_to_all, 4) == 4);
  CHECK(result_slices(Collective::all_to_all, 4) == 4);
  CHECK_FALSE(is_sliced(Collective::broadcast));
}

}  // namespace
}  // namespace dstrain
