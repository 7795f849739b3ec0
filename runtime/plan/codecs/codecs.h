// Codecs: passes that let a tensor travel in another form. Each replaces a collective by a few instructions and is a
// file of its own.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>

#include "runtime/config/job.h"
#include "runtime/ir/program.h"
#include "runtime/plan/residency.h"

namespace dstrain {

// After gather(), if the job asks for it: parameters are gathered as int8. A rank packs its slice where the gather
// begins and unpacks those of all ranks before the first use. Where each replica has all parameters, replicas exchange
// packed slices at the beginning of a step ("shard:U"), and gathers stay within a replica.
void quantize_gathers(Program& program, const Job& job, Place place, const Residency& residency);

// After reduce(), if the job asks for it: a rank packs its gradients as int4 and sends each part to the rank that owns
// it, which adds them in f32. Where ranks are in groups, a part is first added by the rank of the sender's group that
// has its owner's number there, packed again, and then sent to the owner.
void quantize_gradients(Program& program, const Job& job, Place place, const Residency& residency);

// After the others, in training: measures what quantizing loses, in the last micro-batch. Each rank compares the part
// that it owns with what comes back of it. The sums of squares of every unit, what is lost and what it is lost of, are
// f64 in the buffers codec_error_name() of each class that there is.
void measure_codecs(Program& program, const Job& job, Place place);

// The classes of what travels quantized: gathered parameters; each rank's gradients; in two hops, the sums of groups.
inline constexpr std::string_view kCodecClasses[] = {"weights", "gradients", "sums"};
std::string codec_error_name(std::string_view of);

// Returns the buffers that packed parameters are unpacked to, by the buffers that they are gathered in.
std::unordered_map<BufferId, BufferId> unpacked_gathers(const Program& program);

}  // namespace dstrain
