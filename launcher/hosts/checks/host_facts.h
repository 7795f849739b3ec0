// HostFacts: the properties of a host, which the agent on it tells in its first answer.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "launcher/connection/network.h"
#include "launcher/hosts/checks/temporary_room.h"
#include "launcher/placement/process_limits.h"

namespace dstrain {

struct HostFacts {
  std::string host;          // as the hostfile names it
  std::string version;       // of dstrain
  std::string program;       // the checksum of dstrain
  double time = 0;           // by its clock, in seconds
  double clock_ahead_s = 0;  // of this machine's clock; not in the answer
  int64_t cores = 0;
  int64_t memory_bytes = 0;
  std::string memory_source;
  ProcessLimits limits;
  std::vector<InterfaceAddress> addresses;
  std::string identity;  // host_identity(); empty: unknown
  TemporaryRoom room;
};
// Reads an agent's first answer, in which that of another version may lack the last members. Throws an exception of
// message_fault().
void from_json(const nlohmann::json& answer, HostFacts& facts);

// Returns what a host lacks for `ranks` ranks of a run on `hosts` hosts: files, processes, room for temporary files.
std::vector<ProcessLack> lacks_of(const HostFacts& facts, int64_t ranks, int64_t hosts);

// Returns the addresses of a host for messages: "10.77.0.1/24, 10.78.0.1/24", or "none".
std::string addresses_text(const HostFacts& facts);

// Returns how many open files a process needs that communicates with `others` other processes.
int64_t needed_open_files(int64_t others);

}  // namespace dstrain
