// Opening the data of a job.
#pragma once

#include <memory>

#include "runtime/config/job.h"
#include "runtime/data/dataset.h"

namespace dstrain {

// Memory-maps the data of `job` and checks the part that the run will read: each split in use has a sample,
// and every id is below the vocabulary size. Throws UserError, which names file and byte offset.
std::unique_ptr<Dataset> open_dataset(const Job& job);

}  // namespace dstrain
