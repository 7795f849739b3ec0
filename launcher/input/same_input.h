// Whether all ranks of a run have read the same: ranks that no launching process has compared may have
// another configuration, other data, or be another program. Stands on comm and input_facts.h.
#pragma once

#include <string>

#include "launcher/input/input_facts.h"
#include "runtime/comm/communicator.h"

namespace dstrain {

// Collective; the first thing that ranks do together. Returns the same text on every rank: empty where the
// facts of all ranks are equal, else a line for each kind of facts that differ from rank 0's, with the ranks,
// their hosts, and the values of both. Costs one small gather where all is well.
std::string difference_of_input(Communicator& comm, const InputFacts& facts);

}  // namespace dstrain
