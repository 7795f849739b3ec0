// Exchanges texts of any length between ranks.
#pragma once

#include <string>
#include <vector>

#include "runtime/comm/communicator.h"

namespace dstrain {

// Returns the text `mine` of every rank, by rank. Collective.
std::vector<std::string> gather_texts(Communicator& comm, const std::string& mine);

// Returns the text `mine` of rank `root` on every rank. Collective.
std::string broadcast_text(Communicator& comm, std::string mine, int root);

}  // namespace dstrain
