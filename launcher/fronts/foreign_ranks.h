// A process that another program has started as one of several ranks, in a way that dstrain cannot join.
#pragma once

#include "launcher/cli/launch_options.h"

namespace dstrain {

// Throws UserError if environment variables say that torchrun, or a program like it, has started this process as one of
// several, unless an option says how ranks are started: each process would train the whole run alone.
void refuse_foreign_ranks(const LaunchOptions& options);

}  // namespace dstrain
