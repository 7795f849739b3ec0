// The files that a run reads, by their contents. The hosts of a run compare them at every start, ranks compare those of the
// first weights, and a restart compares them with those of the first start. Invariant: all of them take their files from
// here, so that a file that one looks at is one that the others know.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "launcher/input/run_input.h"

namespace dstrain {

// A file that a run reads, and the checksum of what it contains (storage/file_checksum.h).
struct ComparedFile {
  std::string path, checksum;
  bool initial =
      false;  // it has the first weights (initial_files()), which a run from a checkpoint does not read
  bool operator==(const ComparedFile&) const = default;
};
using ComparedFiles = std::vector<ComparedFile>;

// Returns the files that `input` was read from: the configuration file `config`, data, the model's configuration, a
// chat template that a key names, first weights. Throws UserError if one cannot be read.
ComparedFiles compared_files(const RunInput& input, const std::string& config);

// Throws UserError if the configuration is a pipe or one of this process's streams, which can be read only once, and only
// here. `why`: who else reads it ("every host reads it").
void require_rereadable(const std::string& config, std::string_view why);

// Throws UserError with their names if files of a restart, `now`, are others than those that the run began with, `begun`.
void require_unchanged(const ComparedFiles& begun, const ComparedFiles& now);

}  // namespace dstrain
