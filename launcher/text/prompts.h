// The prompts of `dstrain generate`: those of its options, of a file, or of the standard input.
#pragma once

#include <cstdint>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/text/text_model.h"

namespace dstrain {

// Returns the ids of each prompt. Throws UserError for a prompt that is empty, or is no text of the model.
std::vector<std::vector<int32_t>> prompts_of(const GenerateArguments& arguments,
                                             const TextModel& model);

}  // namespace dstrain
