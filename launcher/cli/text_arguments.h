// The command lines of text from a trained model, and the options that others have of them.
#pragma once

#include <string>
#include <vector>

#include "launcher/cli/arguments.h"
#include "launcher/cli/command_line.h"

namespace dstrain {

// Add the options that name a trained model, the device, and how messages are written.
void add_trained(CommandLine& line, TrainedName& name);
void add_device(CommandLine& line, TrainedName& name);
void add_chat_template(CommandLine& line, std::string& chat_template);
// Throws UserError unless the options name one model.
void check_trained(const std::string& command, const TrainedName& name);

// Parse the words after `generate` and `chat`. Throw UserError.
Arguments parse_generate(const std::vector<std::string>& words);
Arguments parse_chat(const std::vector<std::string>& words);

}  // namespace dstrain
