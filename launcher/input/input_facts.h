// InputFacts: what all ranks of a run must have in common: the program, everything that the run's numbers depend on
// (runtime/engine/resume/run_facts.h), and the files it starts from. Paths of files are not compared: they may differ
// between hosts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/config/job.h"
#include "runtime/data/dataset.h"

namespace dstrain {

// One fact that must be the same on all ranks: a name and its value as text.
struct InputFact {
  std::string name;  // "program", "initial weights", "checkpoint", or a name of run_facts()
  std::string value;
  std::string file{};  // for messages only
};
using InputFacts = std::vector<InputFact>;

// Returns the facts of a run of this program, after reading its files. In `job` the device must be chosen and the
// vocabulary's size known. Throws UserError if a file cannot be read, or there is no checkpoint to resume from.
InputFacts input_facts(const Job& job, const Dataset& dataset);

// Returns a checksum of names and values.
uint64_t digest_of(const InputFacts& facts);

// The facts as text, and back. parse_facts throws RunError for any other text.
std::string facts_text(const InputFacts& facts);
InputFacts parse_facts(const std::string& text);

// Returns a text for each difference: "dstrain.seed: 7 there, 1337 here". Files are named as in `here`.
std::vector<std::string> differences(const InputFacts& here, const InputFacts& there);

}  // namespace dstrain
