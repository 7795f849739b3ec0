// The sections of config.json that say position embeddings, of any version of transformers, and the form of the keys.
#pragma once

#include <string_view>

#include "models/decoder/rotary_keys.h"
#include "runtime/config/json/tree.h"

namespace dstrain::models {

// Today's section and an older one, and today's sections for kinds of layers in it.
inline constexpr std::string_view kRotarySection = "rope_parameters",
                                  kOldRotarySection = "rope_scaling", kWhole = "full_attention",
                                  kSliding = "sliding_attention",
                                  kLocalTheta = "rope_local_base_freq",
                                  kUsualRotation = "\"default\"";

struct Factor {
  std::string_view name, fallback;
};
inline constexpr Factor kFactor{"factor", "1.0"}, kLow{"low_freq_factor", "1.0"},
    kHigh{"high_freq_factor", "4.0"};

// Returns the member of one of the sections, or null if it says nothing, as transformers read it.
const Member* section_in(const Node& model, std::string_view name);
// Returns whether there is no member, or its value is null.
bool is_null(const Member* member);
// Sets a member that a section lacks.
void usual_member(Node& section, std::string_view name, const Node& value);
// Returns one of the two sections with the names of the keys, and with what transformers take from elsewhere.
Node completed(const Node& model, Node section);

}  // namespace dstrain::models
