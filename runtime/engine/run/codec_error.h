// What codecs have lost in the newest step, measured.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "runtime/comm/communicator.h"
#include "runtime/engine/step/arenas.h"

namespace dstrain {

// A class of tensors that travel quantized, and its relative error: the root of the sum of squares of what is lost, by
// that of the values.
using CodecErrors = std::vector<std::pair<std::string, double>>;

// Returns the errors of the classes that a plan measures (codecs.h), of all ranks. Collective.
CodecErrors codec_errors(const Plan& plan, const Arenas& arenas, Device& device,
                         Communicator& world);

}  // namespace dstrain
