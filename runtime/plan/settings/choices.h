// The changes of settings that can reduce the memory of a job, by what they change.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/config/job.h"

namespace dstrain {

struct Change {
  std::string settings;  // command-line options
  std::function<void(Job&)> apply;
};
using Choices = std::vector<Change>;

// Returns the changes of each axis: ZeRO stages, recompute, rows that a tensor group gathers again, micro-batches, pieces of
// rows, offload. None changes what the model learns, and a job has at most one of an axis.
std::vector<Choices> choices_of(const Job& job);

// A change that rounds more, and what that costs.
struct Rounding {
  Change change;
  std::string_view cost;
};

// Returns the ways to hold more values of a 16-bit run in 16 bits, from little to much.
std::vector<Rounding> roundings_of(const Job& job);

}  // namespace dstrain
