// Texts that ranks tell each other, of any length. Stands on comm.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace dstrain {

// `mine` of every rank, by rank. Collective.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine);

// `mine` of rank `root`, on every rank. Collective.
std::string broadcast_text(Communicator& comm, std::string mine, int root);

}  // namespace dstrain
