// Codecs: passes that let a tensor travel in another form. Each replaces a collective by a few instructions and is a
// file of its own.
#pragma once

#include <unordered_map>

#include "runtime/config/job.h"
#include "runtime/ir/program.h"
#include "runtime/plan/residency.h"

namespace dstrain {

// After gather(), if the job asks for it: parameters are gathered as int8. A rank packs its slice where the gather
// begins and unpacks those of all ranks before the first use. Where each replica has all parameters, replicas exchange
// packed slices at the beginning of a step ("shard:U"), and gathers stay within a replica.
void quantize_gathers(Program& program, const Job& job, Place place, const Residency& residency);

// Returns the buffers that packed parameters are unpacked to, by the buffers that they are gathered in.
std::unordered_map<BufferId, BufferId> unpacked_gathers(const Program& program);

}  // namespace dstrain
