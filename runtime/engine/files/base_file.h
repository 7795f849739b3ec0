// The weights that a run's adapters are trained for.
#pragma once

#include <string>

#include "runtime/config/family/weight_map.h"
#include "runtime/config/job.h"

namespace dstrain {

// Returns the file or the index of the first weights of a run, or of the run that it resumed; an empty text: they were made
// afresh from the job's seed. `run` names the run in messages ("--run DIR"). Throws UserError if they are not known or no
// longer there.
std::string base_file(const Job& job, const std::string& run);

// Returns what that file has otherwise than the model: fewer rows of tables that the run has grown and trained as a whole, too.
ForeignNames names_in_base(const Job& job, const std::string& base);

}  // namespace dstrain
