// Compares the input of all ranks. Without a launching process that compared it, ranks on different hosts may have
// different configurations, data or programs.
#pragma once

#include <string>

#include "launcher/input/input_facts.h"
#include "runtime/comm/communicator.h"

namespace dstrain {

// Collective: the first operation of a run. Returns the same text on every rank: empty if all ranks have equal facts,
// else a line for each group of ranks whose facts differ from rank 0's, with the ranks, their hosts and both values.
// Takes one small gather if all are equal.
std::string difference_of_input(Communicator& comm, const InputFacts& facts);

}  // namespace dstrain
