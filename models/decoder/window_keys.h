// The keys of windows of attention, and what they say of each layer.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "models/decoder/decoder.h"

namespace dstrain::models {

// Return a family's keys of windows, and the fields of its config.json that are no keys.
std::vector<ModelKey> window_keys(const DecoderDefaults& defaults, const WindowPart& part);
std::vector<KeySpec> window_fields(const WindowPart& part);
// Bring a section with the names of config.json into the form of the keys, and back: keys hold no lists, and no null beside a
// default.
void normalise_windows(Node& section);
void restore_windows(Node& section);
// Returns what is wrong with values that are legal one by one.
std::optional<KeyProblem> window_problem(const ModelConfig& config);
// Returns whether a layer is one of those with a window, and the keys that a query sees in it, itself included; 0: all
// before it.
bool has_window(const ModelConfig& config, const WindowPart& part, int64_t layer);
int64_t window_of(const ModelConfig& config, const WindowPart& part, int64_t layer);

}  // namespace dstrain::models
