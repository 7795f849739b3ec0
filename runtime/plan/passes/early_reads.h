// Reads of optimizer state on disk that begin in the backward pass, before the update needs what they bring.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/ir/program.h"

namespace dstrain {

// Moves reads from disk for the first units of the update into the backward pass: all reads of a unit or none, at most
// OffloadConfig::read_ahead bytes together.
class EarlyReads {
 public:
  EarlyReads(Program& program, const Job& job);

  // Moves the reads of the next unit from `loads`, unless they do not fit or an earlier unit's did not. Gradients stay:
  // the backward pass makes them.
  void take(std::vector<Instruction>& loads);

  // Puts the reads into the backward pass of the step's last micro-batch: unit after unit, spread over its layers, so
  // that what the backward pass itself writes to disk waits for few of them.
  void insert();

 private:
  Program& program_;
  int64_t bytes_left_;
  bool full_ = false;
  std::vector<std::vector<Instruction>> reads_;  // of each unit
};

}  // namespace dstrain
