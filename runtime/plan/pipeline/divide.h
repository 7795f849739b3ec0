// Division of a model among the parts of a pipeline, by what the plan knows of its layers: parameters, work, and
// the bytes that a stage needs for them.
#pragma once

#include <cstdint>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/ir/program.h"

namespace dstrain {

// Returns the first layer of every part and, at the end, the number of layers, as job.pipeline asks for.
// `program` is the whole training program after fuse(). Throws UserError if no layer has a name that
// the job asks for.
std::vector<int64_t> divide_layers(const Program& program, const Job& job);

}  // namespace dstrain
