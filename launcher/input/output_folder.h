// The output directory of a run: which one a run without --output takes, what must not be replaced there, its lock, and
// the checks that files can be written.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "runtime/config/loaded_config.h"
#include "runtime/core/error.h"
#include "runtime/storage/output_lock.h"

namespace dstrain {

// Returns what an output directory holds of a run that has ended or saved its state, for a message: "the weights", "an
// adapter", "the checkpoint of step 4"; empty: nothing that must not be replaced.
std::string results_in(const std::string& directory);

// Returns DIRECTORY for number 1, DIRECTORY-2 for 2, and so on.
std::string numbered_output(const std::string& directory, int64_t number);

// Returns the number of the first of DIRECTORY, DIRECTORY-2, DIRECTORY-3 ... that holds no results and that no other run
// uses.
int64_t free_output_number(const std::string& directory);

// Returns the directories among DIRECTORY, DIRECTORY-2, DIRECTORY-3 ... that are there.
std::vector<std::string> numbered_outputs(const std::string& directory);

// The output directory that settle_output() has found for a run.
struct SettledOutput {
  int64_t number = 1;  // as numbered_output()'s
  std::string line;    // for the log: where results go, and why; empty for number 1
};

// Gives a run for which no output directory is named a free one, unless it replaces results (--overwrite).
SettledOutput settle_output(LoadedConfig& loaded);

// Throws UserError if the run would replace the results of another one without --overwrite.
void check_overwriting(const Job& job);

// Another run has taken the output directory since settle_output() has found it free.
class OutputTaken : public UserError {
 public:
  using UserError::UserError;
};

// Throws OutputTaken or UserError, as lock_output(), if another run uses the job's output directory. Takes no lock.
void refuse_if_used(const Job& job);

// Takes the lock of the job's output directory, which exists, and checks again that no results are replaced. Throws
// OutputTaken if the directory is no longer free and settle_output() can find another; UserError as OutputLock and
// check_overwriting().
std::unique_ptr<OutputLock> lock_output(const Job& job);

// Makes the directory if it is missing, and checks that files can be made in it. Throws UserError.
void check_output_directory(const std::string& directory);

// Checks the files of the output directory that the run opens under their own names; it replaces all others. Also the
// folder that it makes for adapters. Throws UserError.
void check_own_files(const Job& job);

}  // namespace dstrain
