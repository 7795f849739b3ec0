#include "runtime/plan/unit_spaces.h"

#include <catch2/catch.hpp>
#include <tuple>
#include <vector>

#include "tests/plan/plans.h"

using namespace dstrain;

namespace {

// Returns a program of three units of 100, 300 and 100 elements, of which the last one is frozen.
Program three_units() {
  Program program;
  for (const int64_t elements : {100, 300, 100})
    program.units.push_back(
        {.name = fmt::format("u{}", program.units.size()), .elements = elements});
  program.units.back().frozen = true;
  return program;
}

Job offloading(OffloadTo optimizer, OffloadTo parameters = OffloadTo::none) {
  Job job = sharded_job(2);
  job.offload.optimizer = optimizer;
  job.offload.parameters = parameters;
  return job;
}

std::vector<UnitSpaces> spaces_of(const Job& job, int rank = 0) {
  Program program = three_units();
  program.dtype = job.dtype;
  const Place place = place_of(job, rank);
  assign_spaces(program, job, place, residency_of(job, place));
  std::vector<UnitSpaces> list;
  for (const Unit& unit : program.units) list.push_back(unit.spaces);
  return list;
}

}  // namespace

TEST_CASE("without offload all tensors of units are on the device") {
  for (const UnitSpaces& spaces : spaces_of(offloading(OffloadTo::none))) {
    CHECK(spaces.values == Space::device);
    CHECK(spaces.gradients == Space::device);
    CHECK(spaces.state == Space::device);
    CHECK(spaces.update == Space::device);
    CHECK_FALSE(spaces.sends_masters);
  }
}

TEST_CASE("where the host updates it has state and sums of gradients, and sends masters of f32") {
  Job job = offloading(OffloadTo::cpu);
  const std::vector<UnitSpaces> spaces = spaces_of(job);
  for (const size_t trained : {0, 1}) {
    CHECK(spaces[trained].values == Space::device);
    CHECK(spaces[trained].gradients == Space::host);
    CHECK(spaces[trained].state == Space::host);
    CHECK(spaces[trained].update == Space::host);
    CHECK(spaces[trained].sends_masters);
  }
  CHECK(spaces[2].state == Space::device);  // it has none
  job.dtype = DType::bf16;
  CHECK_FALSE(spaces_of(job)[0].sends_masters);
  job.dtype = DType::f32;
  job.offload.parameters = OffloadTo::cpu;  // which are the masters then
  CHECK_FALSE(spaces_of(job)[0].sends_masters);
  CHECK(spaces_of(job)[2].values == Space::host);
}

TEST_CASE("where the device updates, the state alone is elsewhere") {
  Job job = offloading(OffloadTo::nvme);
  job.offload.optimizer_on = UpdateOn::device;
  const UnitSpaces spaces = spaces_of(job)[0];
  CHECK(spaces.state == Space::disk);
  CHECK(spaces.update == Space::device);
  CHECK(spaces.gradients == Space::device);
}

TEST_CASE("gradients that ranks add once per step stay on the device") {
  Job job = offloading(OffloadTo::cpu);
  job.reduce = ReduceMode::boundary;
  CHECK(spaces_of(job)[0].gradients == Space::device);
  CHECK(spaces_of(job)[0].state == Space::host);
}

TEST_CASE("with one micro-batch gradients follow the state to disk, unless they come in slices") {
  Job job = offloading(OffloadTo::nvme);
  CHECK(spaces_of(job)[0].gradients == Space::host);  // the host adds those of micro-batches
  job.batch.accumulation = 1;
  CHECK(spaces_of(job)[0].gradients == Space::disk);
  job.zero_stage = 1;
  CHECK(spaces_of(job)[0].gradients == Space::host);
}

TEST_CASE("a ratio leaves the state of units on the device that fit into the rest") {
  Job job = offloading(OffloadTo::cpu);
  job.offload.ratio = 0.7;  // 120 elements stay
  CHECK(spaces_of(job)[0].state == Space::device);
  CHECK(spaces_of(job)[0].gradients == Space::device);
  CHECK(spaces_of(job)[1].state == Space::host);
}

TEST_CASE("max_in_cpu says how many elements of parameters on nvme stay in the host's memory") {
  Job job = offloading(OffloadTo::none, OffloadTo::nvme);
  job.zero_stage = 3;  // a rank has 25, 75 and 25
  for (const auto& [most, first, second, third] : {std::tuple{24, false, false, false},
                                                   {50, true, false, true},
                                                   {100, true, true, false},
                                                   {125, true, true, true}}) {
    CAPTURE(most);
    job.offload.max_in_cpu = most;
    const std::vector<UnitSpaces> spaces = spaces_of(job);
    CHECK((spaces[0].values == Space::host) == first);
    CHECK((spaces[1].values == Space::host) == second);
    CHECK((spaces[2].values == Space::host) == third);
    for (const UnitSpaces& unit : spaces) CHECK(unit.values != Space::device);
  }
}
