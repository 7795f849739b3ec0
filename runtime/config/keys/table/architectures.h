// Names of model architectures that a user may ask for and that are not built in.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dstrain {

// Returns what a message adds about a model type that is not one of `types`: " (did you mean ...?)" for a typing
// error, that the architecture is not part of dstrain if it is a known one, or an empty string. The name of another
// architecture is never taken for a typing error.
std::string hint_on_architecture(std::string_view name, const std::vector<std::string>& types);

}  // namespace dstrain
