// What a run takes where its configuration says nothing, and what a plan assumes where a run would refuse.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/config/load.h"

namespace dstrain {

// Returns a line about the model that the run trains if the file at `path` names no sizes of one, else an empty text.
// The number of its weights stands there if the vocabulary's size is known.
std::string model_line(const std::string& path, const LoadedConfig& loaded);

// Returns a line about the batch that the run uses if the file at `path` names none, else an empty text.
std::string batch_line(const std::string& path, const LoadedConfig& loaded);

// Returns a line about the optimizer and the clipping of gradients, as far as the file at `path` names none, else an empty
// text. DeepSpeed before 0.19.3 did not clip by default.
std::string update_line(const std::string& path, const LoadedConfig& loaded);

// Returns those of these lines, and settled_lines(), that are not empty.
std::vector<std::string> default_lines(const std::string& path, const LoadedConfig& loaded);

// Returns what a run of the job lacks to read its data: "--data names a file", "input.txt is there", or an empty text.
std::string missing_data(const Job& job);

// The size of a vocabulary that a plan assumes.
struct AssumedVocabulary {
  int64_t size = 0;
  std::string why;  // "input.txt is not there"
  std::string key;  // that gives the size

  // Returns the first line of what is printed about the plan.
  std::string line() const;
};

// Sets the vocabulary's size of a job that is only planned, if the configuration does not: from the data; where there
// are none, or they are token ids, to an assumed one, which is returned. Throws UserError if the data cannot be read.
std::optional<AssumedVocabulary> settle_planned_vocabulary(Job& job);

}  // namespace dstrain
