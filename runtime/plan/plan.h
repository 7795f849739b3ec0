// Plan: a program with an order and an address for every buffer. Plans of one run (train, validate)
// share the persistent memory; their transient memory is the largest of them.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "runtime/ir/kernel.h"
#include "runtime/ir/program.h"
#include "runtime/plan/implementations.h"
#include "runtime/plan/residency.h"

namespace dstrain {

// One execution of an instruction, in the order of the step.
struct Issue {
  int32_t instruction;
  int32_t micro;
};

// The arenas of a rank. `registered` memory is what peers read directly.
enum class Region : uint8_t { persistent, registered, transient };
inline constexpr int kRegions = 3;

struct Address {
  Region region = Region::transient;
  int64_t offset = 0;        // bytes from the region's start
  int64_t micro_stride = 0;  // bytes between the copies of a per-micro-batch buffer, else 0
};

using ClassBytes = std::array<int64_t, kMemoryClasses>;

// Memory of a rank as placed: what is reserved, and who holds it at the moment of the peak.
struct MemoryTable {
  std::array<int64_t, kRegions> region_bytes{};
  ClassBytes at_peak{};  // adds up to total()
  int64_t total() const { return region_bytes[0] + region_bytes[1] + region_bytes[2]; }
};

struct Plan {
  Program program;
  std::vector<Issue> order;
  std::vector<Address> address;    // of every buffer, views included
  std::vector<Address> workspace;  // of every instruction
  std::vector<int64_t> workspace_bytes;
  // Of every issue: how many collectives, counted from the step's start, must be complete before it.
  std::vector<int32_t> waits;
  int64_t micro_batches = 1;  // of a step
  Place place;
  int threads = 1;
  int64_t max_live_elements = INT64_MAX;  // of gathered parameters, one unit at least
};

// Everything one rank runs.
struct RankPlan {
  Plan train;
  Plan validate;  // empty where the job never validates
  MemoryTable memory;
};

// What a plan depends on besides its job and its rank.
struct PlanInputs {
  Implementations::BuildModel build_model;
  std::shared_ptr<const KernelLibrary> library;  // asked for sizes only
  int threads = 1;                               // OpenMP threads of a rank
};

// Builds, places and verifies the plans of `place.rank`. Pure.
RankPlan make_rank_plan(const Job& job, Place place, const PlanInputs& inputs);
// The plan of one forward pass over a single sample of `seq_len` tokens that ends with the logits.
RankPlan make_decode_plan(const Job& job, int64_t seq_len, const PlanInputs& inputs);

// How many collectives a step of the plan starts.
int32_t count_collectives(const Plan& plan);
// Ring-equivalent payload of a step, by the contract's formula.
int64_t wire_bytes(const Plan& plan);

}  // namespace dstrain
