// Opening the data of a job.
#pragma once

#include <memory>

#include "runtime/config/job.h"
#include "runtime/data/dataset.h"
#include "runtime/data/token_source.h"

namespace dstrain {

// Memory-maps the data of `job` and checks the part that the run will read: each split in use has a sample,
// every id is below the vocabulary size, and every element of an array fits the input that reads it. Throws UserError, which
// names file and place.
std::unique_ptr<Dataset> open_dataset(const Job& job);

// Opens a file on which the model that `trained` has trained is measured, as data of the same format. `vocabulary`: that
// of the run. Every id is below the model's vocabulary size. Throws UserError.
std::unique_ptr<TokenSource> open_for_model(const std::string& path, const Job& trained,
                                            const Vocabulary& vocabulary);

// Returns the source, if the model that `trained` has trained can be measured on it. Throws UserError if it has less than
// two tokens, or an id that the model does not have.
std::unique_ptr<TokenSource> checked_for_model(std::unique_ptr<TokenSource> source,
                                               const Job& trained);

}  // namespace dstrain
